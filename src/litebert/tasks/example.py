"""What every task is made of: an `Example`, and what kind of answer it wants."""

from dataclasses import dataclass
from typing import Literal

# classify: one of the labels. several: any number of them. regress: a number. tag: a label for each word. answer: part
# of the second text, or none. choice: which of the options, each read after the first text.
Kind = Literal["classify", "several", "regress", "tag", "answer", "choice"]


@dataclass(frozen=True)
class Answer:
    """A piece of a text, and where in it."""

    text: str
    start: int


Target = str | tuple[str, ...] | float | int | tuple[Answer, ...]


@dataclass(frozen=True, kw_only=True)
class Example:
    """One thing to learn from or to answer."""

    key: str  # its name in the file it came from, for predictions
    texts: tuple[str, ...]  # one or two; tag: its words; answer: question and passage; choice: passage and options
    target: Target | None = None  # None: not known
    group: str = ""  # RACE: which level
    where: str = ""  # file and row, for messages
