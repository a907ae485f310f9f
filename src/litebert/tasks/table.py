"""Files of rows -> numbered rows: CSV, TSV, JSONL and Parquet, compressed or not. A row that is broken is named."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from litebert.config import UserError
from litebert.corpus.read import Bad, Source, csv_rows, find_sources, is_unicode, json_rows, parquet_rows
from litebert.strict import neighbour

Row = dict[str, Any]


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
    source, bad = open_table(path), Bad(skip, "mend or remove it")
    match source.kind:
        case "csv":
            yield from _csv(source, bad, header)
        case "jsonl":
            yield from json_rows(source, bad)
        case _:
            yield from parquet_rows(source, bad)


def _csv(source: Source, bad: Bad, header: tuple[str, ...] | None) -> Iterator[tuple[int, Row]]:
    names: list[str] | None = list(header) if header else None
    for number, row in csv_rows(source, bad):
        if names is None:
            names = row
            if len(set(names)) != len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise UserError(f"{source.path}: the column {twice!r} stands twice in the header")
        elif len(row) != len(names):
            bad(source, number, "fields", f"{len(row)} fields where there should be {len(names)}")
        else:
            yield number, dict(zip(names, row, strict=True))


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
