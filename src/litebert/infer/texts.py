"""What Python code gives as texts -> examples. What is no text is named with its number."""

from collections.abc import Iterable, Sequence
from typing import Any

from litebert.config import UserError
from litebert.tasks.example import Example


def examples_of(texts: Sequence[str | tuple[str, str]]) -> list[Example]:
    """Of texts, or pairs of them."""
    if isinstance(texts, str):
        raise UserError("texts is a single text; give a list of them")
    pairs = [_pair(number, each) for number, each in enumerate(texts)]
    return [Example(key=str(number), texts=pair, where=f"text {number}") for number, pair in enumerate(pairs)]


def _pair(number: int, given: Any) -> tuple[str, ...]:
    parts = (given,) if isinstance(given, str) else tuple(given) if are_texts(given) else ()
    if len(parts) not in (1, 2):
        raise UserError(f"text {number} is {given!r:.60}; give a text, or a pair of them")
    return parts


def are_texts(given: Any) -> bool:
    return isinstance(given, Iterable) and all(isinstance(each, str) for each in given)
