"""A block of documents -> its shards, as bytes. The work that the workers do; it follows from its arguments alone."""

import hashlib
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from litebert.config import UserError
from litebert.corpus.clean import Benchmarks, paragraphs
from litebert.corpus.shards import PARTS, Part, shard_bytes
from litebert.text.tokenizer import Tokenizer

LONGEST = 256  # pieces of a sentence: text without full stops, lists and tables go on for thousands


@dataclass(frozen=True)
class Settings:
    """All that a worker needs, on this machine or another: files travel as their contents."""

    tokenizer_files: tuple[tuple[str, bytes], ...]
    checksum: str
    language: str
    held_out: float
    seed: int
    benchmarks: Benchmarks | None

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, language: str, held_out: float, seed: int, benchmark_files: Sequence[str]
    ) -> "Settings":
        benchmarks = Benchmarks(benchmark_files) if benchmark_files else None
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save(folder)
            files = tuple((file.name, file.read_bytes()) for file in sorted(Path(folder).iterdir()))
        return cls(files, tokenizer.checksum, language, held_out, seed, benchmarks)


@dataclass(frozen=True)
class Encoded:
    """What comes back: for each part the content of its shard, and what was counted."""

    @dataclass(frozen=True)
    class Shard:
        content: bytes
        documents: int
        sentences: int
        pieces: int

    parts: dict[Part, Shard]
    counts: Counter[str]


def encode_block(settings: Settings, texts: Sequence[str]) -> Encoded:
    tokenizer = _tokenizer(settings.tokenizer_files, settings.checksum)
    counts: Counter[str] = Counter()
    sentences: list[str] = []
    per_document: list[int] = []
    aside: list[bool] = []
    for text in texts:
        counts["characters"] += len(text)
        if settings.benchmarks is not None and settings.benchmarks.inside(text):
            counts["contaminated documents"] += 1
            continue
        found = split_sentences(text, settings.language)
        if tokenizer.kind == "bpe":  # its pieces hold the space before a word: inside a document there is one
            found[1:] = [f" {sentence}" for sentence in found[1:]]
        sentences += found
        per_document.append(len(found))
        aside.append(is_held_out(text, settings.held_out, settings.seed))
    ids, lengths = tokenizer.ids(sentences)
    unknown = tokenizer.roles["unk"]
    counts["unknown pieces"] = int((ids == unknown).sum()) if unknown is not None else 0
    owner = np.repeat(np.arange(len(per_document)), per_document)
    lengths, parts_of = cut_long(ids, lengths, tokenizer.word_start_table)
    counts["sentences cut"] = int((parts_of > 1).sum())
    owner = np.repeat(owner, parts_of)[lengths > 0]
    kept = np.bincount(owner, minlength=len(per_document))  # sentences without a piece are none
    counts["documents without a piece"] = int((kept == 0).sum())
    counts["documents"], counts["sentences"], counts["pieces"] = int((kept > 0).sum()), len(owner), len(ids)
    parts: dict[Part, Encoded.Shard] = {}
    for part in PARTS:
        inside = np.array(aside, dtype=bool) == (part == "held-out")
        parts[part] = _part(ids, lengths[lengths > 0], owner, kept, inside, len(tokenizer))
    return Encoded(parts, counts)


def cut_long(
    ids: NDArray[np.int32], lengths: NDArray[np.int64], starts_word: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sentences of more than LONGEST pieces cut between words, so that no text is out of reach: the new lengths, and
    how many of them each sentence has become."""
    parts_of = np.ones(len(lengths), dtype=np.int64)
    if not (lengths > LONGEST).any():
        return lengths, parts_of
    ends = np.cumsum(lengths)
    made: list[int] = []
    for number, (end, length) in enumerate(zip(ends.tolist(), lengths.tolist(), strict=True)):
        at, before = end - length, len(made)
        while end - at > LONGEST:
            words = np.flatnonzero(starts_word[ids[at + 1 : at + LONGEST + 1]])
            size = int(words[-1]) + 1 if len(words) else LONGEST
            made.append(size)
            at += size
        made.append(end - at)
        parts_of[number] = len(made) - before
    return np.array(made, dtype=np.int64), parts_of


def _part(
    ids: NDArray[np.int32],
    lengths: NDArray[np.int64],
    owner: NDArray[np.int64],
    kept: NDArray[np.int64],
    inside: NDArray[np.bool_],
    vocab: int,
) -> Encoded.Shard:
    sentences = inside[owner] if len(owner) else np.zeros(0, dtype=bool)
    pieces = ids[np.repeat(sentences, lengths)]
    documents = kept[inside & (kept > 0)]
    content = shard_bytes(pieces, lengths[sentences], documents, vocab)
    return Encoded.Shard(content, len(documents), int(sentences.sum()), len(pieces))


def split_sentences(text: str, language: str) -> list[str]:
    """Paragraph by paragraph: a line break always ends a sentence."""
    try:
        from sentencex import segment
    except ImportError:
        raise UserError("sentences are split with sentencex; install it with: pip install sentencex") from None
    return [sentence for line in paragraphs(text) for part in segment(language, line) if (sentence := part.strip())]


def is_held_out(text: str, share: float, seed: int) -> bool:
    """By what the document says, so that it falls on the same side wherever it stands."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, salt=seed.to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little") < share * 2**64


@lru_cache(maxsize=1)
def _tokenizer(files: tuple[tuple[str, bytes], ...], checksum: str) -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files:
            (Path(folder) / name).write_bytes(content)
        tokenizer = Tokenizer.load(folder)
    assert tokenizer.checksum == checksum
    return tokenizer
