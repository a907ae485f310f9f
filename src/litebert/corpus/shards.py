"""The corpus on disk: a manifest and memory-mapped shards of ids with their sentence and document boundaries.

A shard is one file, three arrays one after the other: the ids of its sentences (uint16, or uint32 for a vocabulary that
needs it), where each sentence ends in them (uint32), and at which sentence each document ends (uint32). The manifest
says how many there are of each and what the file's checksum is.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from litebert.config import UserError
from litebert.files import meant

FORMAT = 1
MANIFEST = "manifest.json"
Part = Literal["train", "held-out"]
PARTS: tuple[Part, ...] = ("train", "held-out")
REMEDY = "make them with: litebert corpus build TEXT --tokenizer TOKENIZER --to {}"


@dataclass(frozen=True, kw_only=True)
class ShardInfo:
    """A row of the manifest."""

    file: str
    documents: int
    sentences: int
    pieces: int
    sha256: str


@dataclass(frozen=True)
class Shard:
    """Three views of one mapped file."""

    ids: NDArray[np.integer]
    sentence_ends: NDArray[np.uint32]
    document_ends: NDArray[np.uint32]


def id_type(vocab_size: int) -> np.dtype[Any]:
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


def shard_bytes(
    ids: NDArray[np.integer],
    sentence_lengths: NDArray[np.integer],
    per_document: NDArray[np.integer],
    vocab: int,
) -> bytes:
    """The content of a shard file."""
    pieces = ids.astype(id_type(vocab))
    if len(pieces) % 2 and pieces.itemsize == 2:
        pieces = np.append(pieces, pieces.dtype.type(0))  # the boundaries stay aligned
    ends = np.cumsum(sentence_lengths, dtype=np.uint64)
    if len(ends) and ends[-1] >= 1 << 32:
        raise UserError(f"a shard of {ends[-1]} pieces is more than the format holds")
    documents = np.cumsum(per_document, dtype=np.uint64)
    return b"".join((pieces.tobytes(), ends.astype(np.uint32).tobytes(), documents.astype(np.uint32).tobytes()))


class Corpus:
    """One part of a folder of shards, opened and checked."""

    def __init__(self, folder: str | Path, part: Part = "train", check: bool = True) -> None:
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder)
        self.vocab_size = int(self.manifest["tokenizer"]["vocab_size"])
        self.infos = [ShardInfo(**block[part]) for block in self.manifest["blocks"] if block[part]]
        self.shards = [self._open(info, check) for info in self.infos]
        self.documents = sum(info.documents for info in self.infos)
        self.sentences = sum(info.sentences for info in self.infos)
        self.pieces = sum(info.pieces for info in self.infos)
        if not self.documents:
            raise UserError(f"the {part} part of {folder} holds no document")

    def _open(self, info: ShardInfo, check: bool) -> Shard:
        path = self.folder / info.file
        if Path(info.file).name != info.file:
            raise UserError(f"{self.folder / MANIFEST} names {info.file!r}: only files beside it are read")
        try:
            return self._mapped(path, info, check)
        except OSError as problem:
            why = problem.strerror or problem
            raise UserError(f"cannot read the shard {path}: {why}; mend that, or delete it and build again") from None

    def _mapped(self, path: Path, info: ShardInfo, check: bool) -> Shard:
        if not path.is_file():
            raise UserError(f"the shard {path} is missing; build the corpus again to make it anew")
        kind = id_type(self.vocab_size)
        stored = info.pieces + (info.pieces % 2 if kind.itemsize == 2 else 0)
        size = stored * kind.itemsize + 4 * (info.sentences + info.documents)
        if path.stat().st_size != size:
            raise UserError(f"the shard {path} has {path.stat().st_size} bytes, not {size}; build the corpus again")
        if check and file_checksum(path) != info.sha256:
            raise UserError(f"the shard {path} is not what was written: its checksum differs; build the corpus again")
        if not size:
            empty = np.zeros(0, dtype=np.uint32)
            return Shard(np.zeros(0, dtype=kind), empty, empty)
        data = np.memmap(path, dtype=np.uint8, mode="r")
        split = stored * kind.itemsize
        ids = data[: info.pieces * kind.itemsize].view(kind)
        ends = data[split : split + 4 * info.sentences].view(np.uint32)
        return Shard(ids, ends, data[split + 4 * info.sentences :].view(np.uint32))

    def check_tokenizer(self, checksum: str) -> None:
        """The corpus must have been made with this very tokenizer."""
        made = self.manifest["tokenizer"]["sha256"]
        if made != checksum:
            raise UserError(
                f"{self.folder} was made with another tokenizer ({made[:12]}…, not {checksum[:12]}…); "
                f"use the one in {self.folder / 'tokenizer'}, or build the corpus again"
            )


def read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        near = "" if folder.exists() else meant(folder)
        raise UserError(f"no shards under {folder}{near or f'; {REMEDY.format(folder)}'}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise UserError(f"{path}: format {manifest['format']!r}; this version of litebert reads {FORMAT}")
        _ = (int(manifest["tokenizer"]["vocab_size"]), str(manifest["tokenizer"]["sha256"]), dict(manifest["counts"]))
        for block in manifest["blocks"]:
            for part in PARTS:
                _ = ShardInfo(**block[part]) if block[part] else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise UserError(f"{path} is not a manifest that can be read: {problem!r}") from None
    return dict(manifest)


def manifest_bytes(
    fingerprint: Mapping[str, Any], blocks: Sequence[Mapping[str, Any]], counts: Mapping[str, int]
) -> bytes:
    """Everything that made the shards, and nothing (no time, no machine, no number of workers) that did not."""
    total: Counter[str] = Counter(counts)
    for block in blocks:
        total.update(block["counts"])
    data = {"format": FORMAT, **fingerprint, "counts": dict(sorted(total.items())), "blocks": list(blocks)}
    return (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode()


def file_checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
