"""Files -> documents: plain text, JSONL, CSV, TSV and Parquet, each plain or compressed, from disks or fsspec URLs.

A broken row stops with one line that names the file and the row; with `skip_bad` it is counted and left out instead.
"""

import bz2
import csv
import gzip
import hashlib
import io
import json
import lzma
import os
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from glob import glob, has_magic
from itertools import islice
from pathlib import Path
from typing import IO, Any

from litebert.config import UserError
from litebert.corpus.folders import files_below
from litebert.corpus.marks import SEPARATED, delimiter_of, unlike
from litebert.corpus.zstd import ZstdFile
from litebert.files import first_line, meant
from litebert.strict import neighbour

KINDS = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
WHOLE = "a list of all rows; write each on a line of its own, e.g. by: jq -c '.[]' in.json > out.jsonl"
UNQUOTED = {  # what the library says of it -> what is said here
    "new-line character": "a bare carriage return; quote its field or, if all lines end so: tr '\\r' '\\n' < in > out",
    "unexpected end": "a quote opens here that nothing closes",
}
COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
BROKEN = (EOFError, OSError, lzma.LZMAError, zlib.error, ValueError)


@dataclass(frozen=True)
class Source:
    """A file to read."""

    path: str
    kind: str
    compression: str  # a suffix, or ''

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]


@dataclass
class Bad:
    """What to do with rows that cannot be read, and what was done."""

    skip: bool = False
    remedy: str = "to leave such rows out and count them: --skip-bad"
    counts: Counter[str] = field(default_factory=Counter)
    first: list[str] = field(default_factory=list)

    def __call__(self, source: Source, row: int, kind: str, why: str) -> None:
        line = f"{source.path}, row {row}: {why}" if row else f"{source.path}: {why}"
        if not self.skip:
            raise UserError(f"{line}; {self.remedy}")
        self.counts[kind] += 1
        if len(self.first) < 20:
            self.first.append(line)


def find_sources(inputs: Sequence[str | Path], leave: Sequence[Path] = ()) -> list[Source]:
    """Files as given; folders and patterns in the order of their names. What is at or below a path of `leave` is left
    out, unless what is given is there itself."""
    sources: list[Source] = []
    for given in map(str, inputs):
        names, strict = _expand_url(given) if "://" in given else _expand(given)
        found = [source for name in _without(names, given, leave) if (source := _source(name, strict))]
        if not found and (len(inputs) == 1 or _real(given) not in map(_real, leave)):
            raise UserError(f"nothing to read at {given}; give files, folders, patterns or URLs of {', '.join(KINDS)}")
        sources += found
    seen = Counter(source.path for source in sources)
    twice = next((path for path, times in seen.items() if times > 1), None)
    if twice is not None:
        raise UserError(f"{twice} is named twice; each file is read once")
    return sources


def _without(names: list[str], given: str, leave: Sequence[Path]) -> list[str]:
    folders = [_real(folder) for folder in leave]
    folders = [folder for folder in folders if not _real(given).is_relative_to(folder)]
    return [name for name in names if not any(map(_real(name).is_relative_to, folders))] if folders else names


def _real(path: str | Path) -> Path:
    return Path(os.path.realpath(str(path).removeprefix("file://")))


def _expand(given: str) -> tuple[list[str], bool]:
    """Names, and whether each of them must be a file that can be read."""
    path = Path(given)
    if path.is_dir():
        return files_below(path), False
    return sorted(glob(given, recursive=True)) if has_magic(given) and not path.exists() else [given], True


def _expand_url(given: str) -> tuple[list[str], bool]:
    import fsspec

    try:
        files, path = fsspec.core.url_to_fs(given)
        names = sorted(files.glob(path)) if has_magic(given) else [path]
        inside = len(names) == 1 and files.isdir(names[0])
        if inside:
            names = [name for name in sorted(files.find(names[0])) if "/." not in f"/{name.removeprefix(names[0])}"]
        return [files.unstrip_protocol(name) for name in names], not inside
    except (ValueError, ImportError, OSError) as problem:
        raise UserError(f"cannot read {given}: {first_line(problem)}") from None


def uncompressed(path: str) -> str:
    """The name without the ending that says how it is compressed."""
    end = next((end for end in COMPRESSIONS if path.lower().endswith(end)), "")
    return path[: len(path) - len(end)]


def ending(path: str | Path) -> str:
    """What says how a file is written: .csv, of a.CSV.gz too."""
    return Path(uncompressed(str(path))).suffix.lower()


def _source(path: str, strict: bool = True) -> Source | None:
    """A file said by name must be there and of a kind we read; in a folder, others are passed over."""
    if strict and "://" not in path and not Path(path).is_file():
        raise UserError(f"no file or folder {path}{meant(path)}")
    compression = path.removeprefix(uncompressed(path)).lower()
    kind = KINDS.get(ending(path))
    if kind is None:
        if strict:
            known = f"{', '.join(KINDS)}, plain or with {', '.join(COMPRESSIONS)}"
            raise UserError(f"{path} is of no kind that can be read: {known}")
        return None
    return Source(path, kind, compression)


def read_documents(sources: Sequence[Source], column: str, bad: Bad) -> Iterator[str]:
    """The texts, in order. Empty ones are left out and counted under 'empty'."""
    readers: dict[str, Callable[[Source, str, Bad], Iterator[str]]] = {
        "text": _read_text,
        "jsonl": _read_jsonl,
        "csv": _read_csv,
        "parquet": _read_parquet,
    }
    for source in sources:
        any_row = False
        for text in readers[source.kind](source, column, bad):
            any_row = True
            if text.strip():
                yield text
            else:
                bad.counts["empty"] += 1
        if not any_row:
            bad(source, 0, "empty file", "the file holds no text")


def checksum(source: Source) -> tuple[int, str]:
    """Bytes and SHA-256 of a file as it lies there."""
    digest, size = hashlib.sha256(), 0
    with _raw(source) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def _raw(source: Source) -> IO[bytes]:
    try:
        if "://" in source.path:
            import fsspec

            opened: IO[bytes] = fsspec.open(source.path, "rb").open()
            return opened
        return open(source.path, "rb")
    except OSError as problem:
        raise UserError(f"cannot read {source.path}: {problem.strerror or problem}") from None


def _unpacked(source: Source, raw: IO[bytes]) -> Any:
    match source.compression:
        case ".gz":
            return gzip.GzipFile(fileobj=raw)
        case ".bz2":
            return bz2.BZ2File(raw)
        case ".xz":
            return lzma.LZMAFile(raw)
        case ".zst":
            try:
                return io.BufferedReader(ZstdFile(raw), 1 << 20)
            except ImportError:
                raise UserError(
                    f"{source.path} needs zstandard; install it with: pip install 'litebert[corpus]'"
                ) from None
    return raw


def open_bytes(path: str | Path) -> bytes:
    """All of a file, unpacked."""
    (source,) = find_sources([path])
    try:
        with _raw(source) as packed, _unpacked(source, packed) as file:
            return bytes(file.read())
    except BROKEN as problem:
        raise UserError(f"{path} is broken ({first_line(problem)})") from None


def read_lines(source: Source, bad: Bad) -> Iterator[tuple[int, str | None]]:
    """Numbered lines; None for one that is not UTF-8 and was skipped."""
    number = 0
    with _raw(source) as packed, _unpacked(source, packed) as file:
        try:
            for number, raw in enumerate(file, 1):
                try:
                    yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as problem:
                    bad(source, number, "encoding", _not_utf8(problem))
                    yield number, None
        except BROKEN as problem:
            bad(source, number + 1, "broken file", f"the file breaks off here ({first_line(problem)})")


def _not_utf8(problem: UnicodeDecodeError) -> str:
    return f"byte 0x{problem.object[problem.start]:02x} at {problem.start} is not UTF-8"


def _read_text(source: Source, column: str, bad: Bad) -> Iterator[str]:
    """A blank line between documents; each line a paragraph."""
    paragraphs: list[str] = []
    for _, line in read_lines(source, bad):
        if line is None:
            continue
        if line.strip():
            paragraphs.append(line.strip())
        elif paragraphs:
            yield "\n".join(paragraphs)
            paragraphs = []
    if paragraphs:
        yield "\n".join(paragraphs)


def is_unicode(text: str) -> bool:
    """JSON can write half a surrogate pair, which is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_jsonl(source: Source, column: str, bad: Bad) -> Iterator[str]:
    for number, row in json_rows(source, bad):
        if column not in row:
            bad(source, number, "no column", f"no column {column!r}{neighbour(column, map(str, row), 'there are')}")
        elif not isinstance(row[column], str):
            bad(source, number, "not text", f"{column!r} holds {type(row[column]).__name__}, not text")
        elif not is_unicode(row[column]):
            bad(source, number, "not Unicode", f"{column!r} holds half a surrogate pair")
        else:
            yield row[column]


def json_rows(source: Source, bad: Bad) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbered objects, one a line."""
    for number, line in read_lines(source, bad):
        if line is None or not line.strip():
            continue
        listed = WHOLE if number == 1 and line.startswith("[") else ""
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as problem:
            bad(source, number, "not JSON", listed or f"not JSON ({first_line(problem)})")
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            bad(source, number, "not JSON", listed or f"not a JSON object but {type(row).__name__}")


def _read_csv(source: Source, column: str, bad: Bad) -> Iterator[str]:
    header: list[str] | None = None
    mark = mark_of(source)
    for number, row in csv_rows(source, bad, mark):
        if header is None:
            header = row
            if column not in header:
                raise UserError(f"{source.path} has no column {column!r}{neighbour(column, header, 'there are')}")
        elif len(row) != len(header):
            bad(source, number, "fields", unlike(len(row), len(header), mark))
        else:
            yield row[header.index(column)]


def mark_of(source: Source) -> str:
    """What stands between the fields of a CSV, by its header; TSV goes by its name."""
    lines = read_lines(source, Bad(skip=True)) if ending(source.path) == ".csv" else ()
    begin = islice((line for _, line in lines if line and line.strip()), 20)
    header = next(begin, "")
    while header.count('"') % 2 and (more := next(begin, "")):  # a name may have several lines
        header += more
    return delimiter_of(header)


def csv_rows(source: Source, bad: Bad, mark: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Numbered rows of fields; in TSV a quote is a character like any other, as in GLUE's files."""
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    tabs = ending(source.path) == ".tsv"
    skipped: set[int] = set()

    def decoded() -> Iterator[str]:
        for number, line in read_lines(source, bad):
            if line is None:
                skipped.add(number)
            yield line if line is not None else "\n"

    how: dict[str, Any] = {"quoting": csv.QUOTE_NONE} if tabs else {"strict": True}
    reader = csv.reader(decoded(), delimiter="\t" if tabs else mark, **how)
    while True:
        begun = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as problem:
            why = next((ours for theirs, ours in UNQUOTED.items() if theirs in str(problem)), first_line(problem))
            bad(source, begun, "not CSV", why)
            continue
        if row and row != SEPARATED and reader.line_num not in skipped:
            yield reader.line_num, row


def _read_parquet(source: Source, column: str, bad: Bad) -> Iterator[str]:
    for number, row in parquet_rows(source, bad, column):
        if isinstance(row[column], str):
            yield row[column]
        else:
            bad(source, number, "not text", f"{column!r} holds {type(row[column]).__name__}, not text")


def parquet_rows(source: Source, bad: Bad, column: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbered rows, with all columns or one."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise UserError(f"{source.path} needs pyarrow; install it with: pip install 'litebert[corpus]'") from None
    if source.compression:
        raise UserError(f"{source.path}: Parquet compresses inside; unpack the {source.compression} around it")
    number = 0
    with _raw(source) as file:
        try:
            table = parquet.ParquetFile(file)
            names = table.schema_arrow.names
            if column is not None and column not in names:
                raise UserError(f"{source.path} has no column {column!r}{neighbour(column, names, 'there are')}")
            for batch in table.iter_batches(batch_size=1024, columns=[column] if column else None):
                yield from _batch_rows(source, bad, batch, number + 1)
                number += len(batch)
        except (arrow.ArrowException, OSError, UnicodeDecodeError) as problem:
            bad(source, number + 1, "broken file", f"not Parquet, or broken ({first_line(problem)})")


def _batch_rows(source: Source, bad: Bad, batch: Any, first: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbered from `first`. Arrow gives a batch whole or not at all; one with a broken row is asked for row by row."""
    try:
        rows = batch.to_pylist()
    except UnicodeDecodeError as problem:
        if len(batch) == 1:
            bad(source, first, "encoding", _not_utf8(problem))
            return
        for offset in range(len(batch)):
            yield from _batch_rows(source, bad, batch.slice(offset, 1), first + offset)
        return
    yield from enumerate(rows, first)
