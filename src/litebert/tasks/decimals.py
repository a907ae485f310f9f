"""A column of numbers -> whether the comma is their decimal point; and the same numbers with a point."""

import re
from pathlib import Path

from litebert.corpus.read import mark_of
from litebert.tasks.table import open_table, read_rows

COMMAS = re.compile(r"[+-]?(\d*|\d{1,3}(\.\d{3})+)(,\d+)?(e[+-]?\d+)?", re.IGNORECASE)  # 3,5 and 1.234,50 and 3,5E+03
POINTS = re.compile(r"[+-]?\d*\.\d*(e[+-]?\d+)?", re.IGNORECASE)
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")  # 1,234 may be either


def has_decimal_commas(path: str | Path, name: str) -> bool:
    """Only between semicolons, as spreadsheets write where the comma is the decimal point; and only where no number has
    a decimal point, and where not all could be thousands."""
    source = open_table(path)
    if source.kind != "csv" or mark_of(source) != ";":
        return False
    certain = False
    for _, row in read_rows(path, skip=True):
        cell = row.get(name, "").strip()
        if POINTS.fullmatch(cell) or (cell.count(",") > 1 and THOUSANDS.fullmatch(cell)):
            return False
        certain = certain or ("," in cell and bool(COMMAS.fullmatch(cell)) and not THOUSANDS.fullmatch(cell))
    return certain


def with_point(text: str) -> str:
    """A number that is written with a comma, as others write it.

    >>> with_point("3,5"), with_point(" 1.234,50"), with_point("12.10.2020")
    ('3.5', '1234.50', '12.10.2020')
    """
    text = text.strip()
    return text.replace(".", "").replace(",", ".") if COMMAS.fullmatch(text) else text


def meant_by(text: str) -> str:
    """The end of an error's line: what a number with a comma may be.

    >>> meant_by("3,5"), meant_by("1,234"), meant_by("1,234,567"), meant_by("a, b"), meant_by("12")
    ('; write 3.5', '; write 1234 or 1.234', '; write 1234567', '', '')
    """
    found = [text.replace(",", "")] if THOUSANDS.fullmatch(text) else []
    found += [with_point(text)] if "," in text and COMMAS.fullmatch(text) else []
    return f"; write {' or '.join(found)}" if found else ""
