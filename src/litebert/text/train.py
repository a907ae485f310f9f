"""Texts -> a trained `Tokenizer`: ALBERT's unigram, BERT's WordPiece or RoBERTa's byte-level BPE.

The texts are an iterator and are read once. Memory is bounded by a seeded sample: while all sentences fit, all are
used. SentencePiece's suffix array takes about 25 bytes a byte of text, so `MOST_BYTES` stays below 4 GB.
"""

import heapq
import io
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from litebert.config import UserError
from litebert.text.library import LibraryPieces, dress_byte_level, dress_wordpiece, from_wordpiece
from litebert.text.normalise import Normaliser
from litebert.text.tokenizer import Tokenizer
from litebert.text.unigram import UnigramPieces
from litebert.text.words import Kind

MOST_SENTENCES = 10_000_000  # the original's input_sentence_size
MOST_BYTES = 140_000_000
LONGEST = 4000  # bytes; sentencepiece leaves out, without a word, lines of more than 4192
THREADS = 4  # fixed: sums of floats depend on how the work is parted

# google-research/albert: pad 0, unk 1, then these; the symbols take ids 5 to 12
ALBERT_CONTROL = ["[CLS]", "[SEP]", "[MASK]"]
ALBERT_SYMBOLS = ["(", ")", '"', "-", ".", "–", "£", "€"]
COVERAGE = 0.99995
BERT_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA_SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]  # and <mask>, the last id

_SENTENCE_END = re.compile(r"[.!?…。！？।]['\"”’)]*\s")
_RESERVED = str.maketrans({"▅": " ", "\0": " ", "\t": " "})  # sentencepiece leaves out lines with its own marks
_BOUNDARY = ",,,,,"  # its characters become pieces, so it is made of one that stands there anyway
_DIGIT_COMMA = re.compile(r"(?<=[\d²³¹⁰-₉①-⒛]),")


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    kind: Kind = "unigram"
    vocab_size: int = 30000
    cased: bool | None = None  # None: as the kind's own, lower-cased but for byte-level BPE
    keep_accents: bool | None = None
    max_sentences: int = MOST_SENTENCES
    max_bytes: int = MOST_BYTES
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("vocab_size", 1), ("max_sentences", 1), ("max_bytes", LONGEST)):
            if getattr(self, name) < least:
                raise UserError(f"{name} = {getattr(self, name)} must be at least {least}")

    @property
    def normalise(self) -> Normaliser:
        own = self.kind == "bpe"
        cased = own if self.cased is None else self.cased
        return Normaliser(lower=not cased, keep_accents=own if self.keep_accents is None else self.keep_accents)


@dataclass(kw_only=True)
class Counts:
    """What became of the texts."""

    texts: int = 0
    empty_texts: int = 0
    sentences: int = 0
    split_lines: int = 0  # longer than the trainer takes: cut at sentence ends or spaces, nothing lost
    used_sentences: int = 0
    used_bytes: int = 0


def train_tokenizer(
    texts: Iterable[str], settings: TrainSettings, say: Callable[[str], object] = lambda _: None
) -> tuple[Tokenizer, Counts]:
    """The same texts, settings and seed give the same tokenizer, byte for byte."""
    counts = Counts()
    sample = draw_sample(_sentences(texts, settings, counts, say), settings)
    counts.used_sentences, counts.used_bytes = len(sample), sum(len(text.encode()) for text in sample)
    if not sample:
        raise UserError(f"no text to train on: {counts.texts} texts, none with a word in it; give other files")
    say(f"training {settings.vocab_size:,} {settings.kind} pieces on {counts.used_sentences:,} sentences")
    train = {"unigram": _train_unigram, "wordpiece": _train_wordpiece, "bpe": _train_bpe}[settings.kind]
    return train(sample, settings), counts


def _sentences(
    texts: Iterable[str], settings: TrainSettings, counts: Counts, say: Callable[[str], object]
) -> Iterator[str]:
    for text in texts:
        counts.texts += 1
        before = counts.sentences
        for line in text.splitlines():
            normal = settings.normalise(line.translate(_RESERVED)) if settings.kind == "unigram" else line.strip()
            parts = list(split_long(normal))
            counts.split_lines += len(parts) > 1
            counts.sentences += len(parts)
            yield from parts
        counts.empty_texts += counts.sentences == before
        if counts.texts % 1000 == 0:
            say(f"read {counts.texts:,} texts, {counts.sentences:,} sentences")


def split_long(line: str, most: int = LONGEST) -> Iterator[str]:
    """Parts of at most so many bytes: cut after a sentence, else at a space, else between two characters.

    >>> list(split_long("One two. Three four five", most=12))
    ['One two.', 'Three four', 'five']
    """
    while len(line) * 4 > most and len(line.encode()) > most:
        head = line.encode()[: most + 1].decode(errors="ignore")
        ends = [match.end() for match in _SENTENCE_END.finditer(head)]
        cut = ends[-1] if ends else head.rfind(" ") + 1
        if cut <= 0:
            cut = len(head.encode()[:most].decode(errors="ignore"))
        yield line[:cut].strip()
        line = line[cut:].lstrip()
    if line:
        yield line


def draw_sample(sentences: Iterable[str], settings: TrainSettings) -> list[str]:
    """All sentences while they fit, else a uniform sample of as many as do, in the order of the text.

    Each sentence draws a number; those with the lowest stay. So one pass is enough, whatever limit is met.
    """
    generator = random.Random(settings.seed)
    kept: list[tuple[float, int, str]] = []
    size, heaped = 0, False
    for index, text in enumerate(sentences):
        entry = (-generator.random(), index, text)
        size += len(text.encode())
        if not heaped:
            kept.append(entry)
            heaped = len(kept) > settings.max_sentences or size > settings.max_bytes
            if heaped:
                heapq.heapify(kept)
        else:
            heapq.heappush(kept, entry)
        while len(kept) > settings.max_sentences or size > settings.max_bytes:
            size -= len(heapq.heappop(kept)[2].encode())
    kept.sort(key=lambda entry: entry[1])
    return [text for _, _, text in kept]


def _consume(sample: list[str]) -> Iterator[str]:
    """Each sentence is let go of once the trainer has its own copy."""
    sample.reverse()
    while sample:
        yield sample.pop()


def _train_unigram(sample: list[str], settings: TrainSettings) -> Tokenizer:
    from sentencepiece import SentencePieceTrainer

    # no piece may end in a digit and a comma: the digit-comma rule would split it again and its id would lie idle
    fed = (_DIGIT_COMMA.sub(f"{_BOUNDARY},", sentence) for sentence in _consume(sample))
    written = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=fed,
            model_writer=written,
            model_type="unigram",
            vocab_size=settings.vocab_size,
            character_coverage=COVERAGE,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=ALBERT_CONTROL,
            user_defined_symbols=ALBERT_SYMBOLS,
            pretokenization_delimiter=_BOUNDARY,
            num_threads=THREADS,
            minloglevel=2,
        )
    except (RuntimeError, OSError, ValueError) as problem:
        raise UserError(_why(str(problem), settings)) from None
    model = written.getvalue()
    normalise = settings.normalise
    published = {"do_lower_case": normalise.lower, "keep_accents": normalise.keep_accents}
    return Tokenizer(UnigramPieces(model, normalise), {"spiece.model": model}, published)


def _why(problem: str, settings: TrainSettings) -> str:
    most = re.search(r"value <= (\d+)", problem)
    if most:
        return _too_few(int(most[1]), settings)
    least = re.search(r"required_chars\D*(\d+) vs (\d+)", problem)
    if least:
        return f"vocab_size = {settings.vocab_size} is too small: the text has {least[2]} characters; use more"
    return f"sentencepiece could not train: {' '.join(problem.split())}"


def _too_few(most: int, settings: TrainSettings) -> str:
    return f"vocab_size = {settings.vocab_size} is more than the {most} pieces this text gives; use that, or more text"


def _train_wordpiece(sample: list[str], settings: TrainSettings) -> Tokenizer:
    from tokenizers import Tokenizer as Library
    from tokenizers import models, trainers

    normalise = settings.normalise
    published = {"do_lower_case": normalise.lower, "strip_accents": not normalise.keep_accents}
    library = Library(models.WordPiece({}, unk_token="[UNK]"))
    dress_wordpiece(library, lower=normalise.lower, strip_accents=not normalise.keep_accents)
    first, inner = _alphabet(library, sample, settings.vocab_size // 3)
    # the trainer takes characters inside words in the order of a hash table, new in each process: so they are given
    given = [*BERT_SPECIALS, *first, *(f"##{char}" for char in inner)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=settings.vocab_size,
        special_tokens=given,
        initial_alphabet=first,
        limit_alphabet=len(first),
        show_progress=False,
    )
    library.train_from_iterator(_consume(sample), trainer)
    size = library.get_vocab_size()
    if size > settings.vocab_size:
        raise UserError(f"vocab_size = {settings.vocab_size} is too small: the specials and characters are {size}")
    if size < settings.vocab_size:
        raise UserError(_too_few(size, settings))
    names = [str(library.id_to_token(index)) for index in range(size)]
    file = "".join(f"{name}\n" for name in names).encode()
    return Tokenizer(from_wordpiece(names, published), {"vocab.txt": file}, published)


def _alphabet(library: Any, sample: list[str], most: int) -> tuple[list[str], list[str]]:
    """The characters of the text, the most frequent ones if they are many, and those that may stand inside a word."""
    seen: Counter[str] = Counter()
    for sentence in sample:
        seen.update(library.normalizer.normalize_str(sentence))
    chars = [char for char in seen if not char.isspace()]
    chars = sorted(sorted(chars, key=lambda char: (-seen[char], char))[: max(1, most)])
    return chars, [char for char in chars if len(library.pre_tokenizer.pre_tokenize_str(f"a{char}")) == 1]


def _train_bpe(sample: list[str], settings: TrainSettings) -> Tokenizer:
    from tokenizers import AddedToken, models, pre_tokenizers, trainers
    from tokenizers import Tokenizer as Library

    least = 256 + len(ROBERTA_SPECIALS) + 1
    if settings.vocab_size < least:
        raise UserError(f"vocab_size = {settings.vocab_size} is too small: the bytes and specials are {least} pieces")
    normalise = None if settings.normalise == Normaliser(lower=False, keep_accents=True) else settings.normalise
    library = Library(models.BPE())
    dress_byte_level(library, normalise=normalise)
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocab_size - 1,
        special_tokens=ROBERTA_SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(_consume(sample), trainer)
    library.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False, special=True)])
    dress_byte_level(library, normalise=normalise)
    if library.get_vocab_size() != settings.vocab_size:
        raise UserError(_too_few(library.get_vocab_size(), settings))
    return Tokenizer(LibraryPieces(library))
