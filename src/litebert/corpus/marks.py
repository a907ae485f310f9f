"""The header of a CSV -> what stands between its fields."""

import re

SEPARATED = ["sep=", ""]  # a line by which Excel says it
MARKS = {",": "commas", "\t": "tabs", ";": "semicolons"}


def delimiter_of(header: str) -> str:
    """What stands between the fields of a CSV's header: a comma if there is one outside quotes, else a tab or a
    semicolon, as spreadsheets write where the comma is the decimal point.

    >>> delimiter_of("text;label"), delimiter_of("text,label;x"), delimiter_of('"text, whole";label'), delimiter_of("a")
    (';', ',', ';', ',')
    >>> delimiter_of("sep=;")
    ';'
    """
    said = re.fullmatch("sep=(.)\\s*", header)
    bare = said[1] if said else re.sub('"[^"]*"', "", header)
    return next((mark for mark in MARKS if mark in bare), ",")


def unlike(fields: int, names: int, mark: str) -> str:
    """Of a row that does not fit its header.

    >>> unlike(1, 2, ","), unlike(1, 2, ";")
    ('1 fields where there should be 2', '1 fields where there should be 2, by the semicolons of the header')
    """
    by = "" if mark == "," else f", by the {MARKS[mark]} of the header"
    return f"{fields} fields where there should be {names}{by}"
