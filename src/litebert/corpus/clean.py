"""Documents -> fewer documents: exact duplicates and documents that hold a benchmark's text, both counted.

Duplicates are found in two passes over the text with a bounded memory: the first writes an 8-byte digest of every
paragraph and document into bucket files by its leading bits, then each bucket is sorted alone; what remains is one bit
for each paragraph. The first occurrence stays.
"""

import hashlib
import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.config import UserError
from litebert.corpus.read import Bad, csv_rows, find_sources, mark_of, read_lines
from litebert.files import first_line

BUCKETS = 64
WINDOW = 13  # words: the length of overlap that counts as holding a benchmark's text
SHORTEST = 8  # a benchmark text of fewer words is not looked for: it would hit by chance
_WORD = re.compile(r"\w+")
_BASE = np.uint64(0x9E3779B97F4A7C15)


def digest(text: str) -> bytes:
    return hashlib.blake2b(text.strip().encode(), digest_size=8).digest()


class Duplicates:
    """Which units of a stream (paragraphs or documents, by number) have been there before: `add` all, `close`, ask."""

    def __init__(self, folder: Path) -> None:
        self.where = tempfile.TemporaryDirectory(dir=folder, prefix="duplicates-")
        self.waiting: list[list[bytes]] = [[] for _ in range(BUCKETS)]
        self.total = 0
        self.again = np.zeros(0, dtype=np.uint8)

    def add(self, unit: str) -> None:
        key = digest(unit)
        bucket = key[0] % BUCKETS
        self.waiting[bucket].append(key + self.total.to_bytes(8, "little"))
        self.total += 1
        if len(self.waiting[bucket]) >= 4096:
            _append(self._file(bucket), self.waiting[bucket])

    def close(self) -> None:
        again = np.zeros(self.total, dtype=bool)
        for bucket, waiting in enumerate(self.waiting):
            _append(self._file(bucket), waiting)
            if self._file(bucket).exists():
                rows = np.fromfile(self._file(bucket), dtype=np.uint64).reshape(-1, 2)
                rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
                same = rows[1:, 0] == rows[:-1, 0]
                again[rows[1:, 1][same].astype(np.int64)] = True
        self.again = np.packbits(again)
        self.where.cleanup()

    def __getitem__(self, number: int) -> bool:
        return bool(self.again[number >> 3] >> (7 - (number & 7)) & 1)

    def _file(self, bucket: int) -> Path:
        return Path(self.where.name) / str(bucket)


def _append(path: Path, rows: list[bytes]) -> None:
    if rows:
        with open(path, "ab") as file:
            file.write(b"".join(rows))
        rows.clear()


def paragraphs(text: str) -> list[str]:
    return [line for part in text.split("\n") if (line := part.strip())]


class Benchmarks:
    """Runs of words that must not be learnt: of every text in the benchmark's files."""

    def __init__(self, files: Sequence[str | Path]) -> None:
        runs: dict[int, set[int]] = {length: set() for length in range(SHORTEST, WINDOW + 1)}
        for file in files:
            found = 0
            for text in benchmark_texts(Path(file)):
                words = _hashes(text)
                length = min(len(words), WINDOW)
                if length >= SHORTEST:
                    runs[length].update(_windows(words, length).tolist())
                    found += 1
            if not found:
                raise UserError(f"{file} holds no text of at least {SHORTEST} words to look for")
        self.runs = {n: np.array(sorted(found), dtype=np.uint64) for n, found in runs.items() if found}

    def inside(self, text: str) -> bool:
        """Whether a document holds one of them."""
        words = _hashes(text)
        for length, known in self.runs.items():
            if len(words) >= length:
                here = _windows(words, length)
                at = np.minimum(np.searchsorted(known, here), len(known) - 1)
                if (known[at] == here).any():
                    return True
        return False


def _hashes(text: str) -> NDArray[np.uint64]:
    words = _WORD.findall(text.lower())
    cache: dict[str, int] = {}
    for word in words:
        if word not in cache:
            cache[word] = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")
    return np.fromiter((cache[word] for word in words), dtype=np.uint64, count=len(words))


def _windows(words: NDArray[np.uint64], length: int) -> NDArray[np.uint64]:
    count = len(words) - length + 1
    total = np.zeros(count, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for step in range(length):
            total = total * _BASE + words[step : step + count]
    return total


def benchmark_texts(path: Path) -> Iterator[str]:
    """Every string in a benchmark's file: JSON of any shape, JSONL, TSV, CSV or plain lines, compressed or not."""
    if not path.is_file():
        raise UserError(f"no benchmark file {path}")
    source = find_sources([path])[0]
    if source.kind == "parquet":
        raise UserError(f"{path}: a benchmark to look for is read from JSON, JSONL, CSV, TSV or text")
    if source.kind == "csv":
        for _, row in csv_rows(source, Bad(), mark_of(source)):
            yield from row
        return
    lines = [(number, line) for number, line in read_lines(source, Bad()) if line is not None]
    if source.kind == "text":
        yield from (line for _, line in lines)
        return
    try:
        yield from _strings(json.loads("".join(line for _, line in lines)))
    except RecursionError as problem:
        raise UserError(f"{path}: not JSON ({first_line(problem)})") from None
    except ValueError:  # not one value: one a line
        for number, line in lines:
            if line.strip():
                try:
                    yield from _strings(json.loads(line))
                except (ValueError, RecursionError) as problem:
                    raise UserError(f"{path}, row {number}: not JSON ({first_line(problem)})") from None


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part)
