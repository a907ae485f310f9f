"""Files of rows -> numbered rows: CSV, TSV, JSONL and Parquet, compressed or not. A row that is broken is named."""

import csv
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.config import UserError
from litebert.corpus.marks import delimiter_of, unlike
from litebert.corpus.read import (
    Bad,
    Source,
    csv_rows,
    find_sources,
    is_unicode,
    json_rows,
    mark_of,
    parquet_rows,
    uncompressed,
)
from litebert.strict import neighbour

Row = dict[str, Any]


@dataclass
class Broken(Bad):
    """What to do with rows of a user's file; another encoding is mostly that of all of them."""

    remedy: str = "mend or remove it"

    def __call__(self, source: Source, row: int, kind: str, why: str) -> None:
        if kind == "encoding":
            found = "utf-16" if row == 1 and why.startswith(("byte 0xff at 0 ", "byte 0xfe at 0 ")) else "cp1252"
            end = Path(uncompressed(source.path)).suffix
            name = f"in{end}" if source.compression else shlex.quote(source.path)
            again = f"iconv -f {found} -t utf-8 {name} > out{end}"
            self.remedy = f"mend that byte, or if the whole file is written so, save it as UTF-8, e.g. by: {again}"
        super().__call__(source, row, kind, why)


def open_table(path: str | Path) -> Source:
    """A file of rows."""
    sources = find_sources([path])
    if len(sources) != 1:
        raise UserError(f"{path} is {len(sources)} files; give one of them")
    source = sources[0]
    if source.kind == "text":
        raise UserError(f"{path} is plain text; rows come as .csv, .tsv, .jsonl or .parquet")
    return source


def read_rows(path: str | Path, header: tuple[str, ...] | None = None, skip: bool = False) -> Iterator[tuple[int, Row]]:
    """Rows with their numbers as a reader of the file counts them. `header` names the columns of a file without one;
    `skip` passes over rows that are broken."""
    source, bad = open_table(path), Broken(skip)
    match source.kind:
        case "csv":
            yield from _csv(source, bad, header)
        case "jsonl":
            yield from json_rows(source, bad)
        case _:
            yield from parquet_rows(source, bad)


def _csv(source: Source, bad: Bad, header: tuple[str, ...] | None) -> Iterator[tuple[int, Row]]:
    names: list[str] | None = list(header) if header else None
    mark = "," if header else mark_of(source)
    for number, row in csv_rows(source, bad, mark):
        if names is None:
            names = row
            twice = next((name for name in names if name and names.count(name) > 1), None)
            if twice is not None:  # columns without a name are what spreadsheets leave beside a table
                raise UserError(f"{source.path}: the column {twice!r} stands twice in the header")
        elif len(row) != len(names):
            bad(source, number, "fields", unlike(len(row), len(names), mark))
        else:
            yield number, dict(zip(names, row, strict=True))


def names_in(header: str) -> set[str]:
    """The columns that the first line of a CSV names.

    >>> sorted(names_in('id;"text, whole"'))
    ['id', 'text, whole']
    """
    return set(next(csv.reader([header], delimiter=delimiter_of(header)), ()))


def column(row: Row, names: tuple[str, ...], where: str) -> Any:
    """The value under the first of these names that the row has."""
    for name in names:
        if name in row:
            return row[name]
    raise UserError(f"{where}: no column {names[0]!r}{neighbour(names[0], map(str, row), 'there are')}")


def text_of(row: Row, names: tuple[str, ...], where: str) -> str:
    """A text that is not empty."""
    value = column(row, names, where)
    if not isinstance(value, str):
        raise UserError(f"{where}: {names[0]!r} holds {type(value).__name__}, not text")
    if not value.strip():
        raise UserError(f"{where}: the text in {names[0]!r} is empty")
    if not is_unicode(value):
        raise UserError(f"{where}: half a surrogate pair stands there, which is no character; mend or remove it")
    return value
