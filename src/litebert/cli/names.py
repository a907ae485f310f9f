"""Words on a command line -> models by the names that tables and pictures give them."""

from collections.abc import Sequence
from pathlib import Path

from litebert.config import UserError


def named(words: Sequence[str]) -> dict[str, str]:
    """MODEL or NAME=MODEL, each; without a name the last part of the path, or all of it where that is not enough.

    >>> named(["runs/rte", "MiniLM=some/folder"])
    {'rte': 'runs/rte', 'MiniLM': 'some/folder'}
    >>> named(["a/model", "b/model"])
    {'a/model': 'a/model', 'b/model': 'b/model'}
    """
    pairs = []
    for word in words:
        name, equals, rest = word.partition("=")
        pairs.append((name, rest) if equals and name and rest and not Path(word).exists() else ("", word))
    short = [name or Path(word).name or word for name, word in pairs]
    found: dict[str, str] = {}
    for (name, word), brief in zip(pairs, short, strict=True):
        label = name or (brief if short.count(brief) == 1 else word)
        if label in found:
            raise UserError(f"{label} is named twice; give each model once, or names of their own: NAME=MODEL")
        found[label] = word
    return found
