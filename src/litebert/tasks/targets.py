"""A cell of a user's file -> what it says is right: a label, labels, a number, tags, answers, an option. What cannot be
meant is named with its row."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from litebert.config import UserError
from litebert.corpus.read import is_unicode
from litebert.strict import neighbour
from litebert.tasks.decimals import meant_by, with_point
from litebert.tasks.example import Answer
from litebert.tasks.table import Row, column, text_of
from litebert.tasks.words import words_of

SEPARATOR = "|"  # between labels, or options, in one field
LETTERS = "ABCDEFGHIJ"


def missing(value: Any) -> bool:
    """Nothing there: null, not a number, or blank."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def label_of(value: Any, name: str, where: str) -> str:
    """The name of a class; 1, 1.0 and "1" are the same."""
    if missing(value):
        raise UserError(f"{where}: no label in {name!r}; fill it in, or leave the row out")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def labels_of(value: Any, name: str, where: str) -> list[str]:
    """Any number of names: a list, or a field that joins them by |; an empty field or list is none of them."""
    if value is None or value != value:
        raise UserError(f"{where}: no label in {name!r}; an empty list says that there is none")
    parts = value if isinstance(value, list) else [part for part in str(value).split(SEPARATOR) if part.strip()]
    return [label_of(part, name, where) for part in parts]


def known(label: str, labels: Sequence[str], where: str) -> str:
    if label not in labels:
        raise UserError(f"{where}: label {label!r} is not in the training file{neighbour(label, labels)}")
    return label


def as_number(value: Any, comma: bool = False) -> float | None:
    """`comma`: whether that is its decimal point, as `has_decimal_commas` finds."""
    try:
        found = float(with_point(value) if comma else value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if found == found and abs(found) != float("inf") else None


def number_of(value: Any, name: str, where: str, comma: bool = False) -> float:
    found = as_number(value, comma)
    if found is None:
        raise UserError(no_number(value, name, where))
    return found


def no_number(value: Any, name: str, where: str) -> str:
    return f"{where}: {value!r:.60} in {name!r} is not a number{meant_by(str(value).strip())}"


def in_digits(number: float) -> str:
    """As people write a quantity, whatever its size.

    >>> in_digits(152437.25), in_digits(2.5), in_digits(-1700000123.0), in_digits(1 / 3)
    ('152,437', '2.5', '-1,700,000,123', '0.333333')
    """
    return f"{number:,.0f}" if 1e6 <= abs(number) < 1e15 else f"{number:,.6g}"


def flag_of(value: Any, name: str, where: str) -> bool:
    if str(value).strip().lower() in ("1", "1.0", "true", "yes"):
        return True
    if str(value).strip().lower() in ("0", "0.0", "false", "no", ""):
        return False
    raise UserError(f"{where}: {value!r} in {name!r} is neither yes nor no (1 or 0)")


def answers_of(value: Any, passage: str, where: str) -> tuple[Answer, ...]:
    """`{"text": […], "answer_start": […]}` as SQuAD has it on the hub, one such answer or a list of them, or texts."""
    try:
        if isinstance(value, dict) and isinstance(value["text"], list):
            starts = value.get("answer_start") or [None] * len(value["text"])
            pairs = list(zip(value["text"], starts, strict=True))
        else:
            parts = value if isinstance(value, list) else [] if missing(value) else [value]
            pairs = [
                (each["text"], each.get("answer_start")) if isinstance(each, dict) else (each, None) for each in parts
            ]
        found = [(str(text), _find(str(text), passage) if start is None else int(start)) for text, start in pairs]
    except (KeyError, TypeError, ValueError, OverflowError):
        raise UserError(
            f"{where}: {str(value)[:60]!r} is no answer; give its text, or 'text' and 'answer_start'"
        ) from None
    for text, at in found:
        if at < 0 or not text or passage[at : at + len(text)] != text:
            raise UserError(f"{where}: the answer {text[:40]!r} does not stand in the passage where it should")
    return tuple(Answer(text, at) for text, at in found)


def _find(text: str, passage: str) -> int:
    """As words of their own if they stand so, else wherever they stand."""
    alone = re.search(rf"(?<!\w){re.escape(text)}(?!\w)", passage)
    return alone.start() if alone else passage.find(text)


def options_of(row: Row, where: str) -> list[str]:
    """Two or more to choose among: a list, or a field that joins them by |."""
    value = column(row, ("options",), where)
    options = value.split(SEPARATOR) if isinstance(value, str) else value
    if not isinstance(options, list) or len(options) < 2 or any(missing(option) for option in options):
        raise UserError(f"{where}: 'options' holds {str(value)[:40]!r}; give a list of two or more texts")
    return [str(option) for option in options]


def choice_of(value: Any, options: Sequence[str], where: str) -> int:
    """Its number, its letter or its text."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(options):
        return value
    text, names = str(value).strip(), [option.strip() for option in options]
    if text in names:
        return names.index(text)
    letters = LETTERS[: len(options)]
    if len(text) == 1 and text.upper() in letters:
        return letters.index(text.upper())
    if text.isdigit() and int(text) < len(options):
        return int(text)
    raise UserError(f"{where}: {value!r} is none of the {len(options)} options")


def words_and_tags(
    row: Row, texts: tuple[str, ...], label: tuple[str, ...], where: str, labelled: bool = True
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Words with a tag each, from lists or from a text with marked spans, which is split as `words_of` says."""
    value = column(row, texts, where)
    marks = column(row, label[:1], where) if labelled else None
    if labelled and not isinstance(marks, list):
        raise UserError(f"{where}: {label[0]!r} holds {str(marks)[:40]!r}; tags and spans come as a list (JSONL)")
    if isinstance(value, list):
        words = tuple(str(word) for word in value)
        if not all(map(is_unicode, words)):
            raise UserError(f"{where}: half a surrogate pair stands there, which is no character; mend or remove it")
        if marks is not None and len(marks) != len(words):
            raise UserError(f"{where}: {len(words)} words and {len(marks)} tags")
        return words, None if marks is None else tuple(str(mark) for mark in marks)
    text = text_of(row, texts, where)
    places = words_of(text)
    words = tuple(text[low:high] for low, high in places)
    return words, None if marks is None else _tags(marks, places, len(text), where)


def _tags(marks: Iterable[Any], places: Sequence[tuple[int, int]], size: int, where: str) -> tuple[str, ...]:
    tags = ["O"] * len(places)
    for mark in marks:
        try:
            start, end, name = int(mark["start"]), int(mark["end"]), str(mark["label"])
        except (KeyError, TypeError, ValueError, OverflowError):
            raise UserError(f"{where}: the span {str(mark)[:40]!r} needs 'start', 'end' and 'label'") from None
        touched = [n for n, (low, high) in enumerate(places) if low < end and high > start]
        if not touched or not 0 <= start < end <= size:
            raise UserError(f"{where}: the span {start} to {end} marks no word of the text")
        if any(tags[n] != "O" for n in touched):
            raise UserError(f"{where}: the span {start} to {end} marks a word that another marks already")
        for n in touched:
            tags[n] = f"{'B' if n == touched[0] else 'I'}-{name}"
    return tuple(tags)


def in_spans(labels: Iterable[str]) -> bool:
    """Whether tags say where an entity begins; others, as parts of speech, stand for a word each."""
    return all(label == "O" or label[1:2] == "-" for label in labels)
