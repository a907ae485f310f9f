"""One example, what is right and what was said -> a `Case` as people read it; and what two sides have in common."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from litebert.tasks.example import Example, Target, Task
from litebert.tasks.metrics import entities
from litebert.tasks.targets import in_digits, in_spans

LONG = 400  # characters of a text that are shown

Mark = tuple[int, int, str]  # first and end of the words it is about, and a label


@dataclass(frozen=True)
class Case:
    """An example as it is shown: long texts shortened, targets in words."""

    key: str
    where: str
    texts: tuple[str, ...]
    gold: str
    guess: str
    probability: float | None  # of the guess


def as_case(task: Task, example: Example, guess: Target, probability: float | None) -> Case:
    gold: Any = example.target
    shown = example.texts
    if task.kind == "tag":
        shown = (" ".join(example.texts),)
    elif task.kind == "answer":
        place = gold[0].start if gold else max(0, example.texts[1].find(str(guess)))
        shown = (example.texts[0], around(example.texts[1], place))
    kept = tuple(around(text, 0) for text in shown)
    said = [in_words(task, example, side) for side in (gold, guess)]
    return Case(example.key, example.where, kept, said[0], said[1], probability)


def around(text: str, place: int) -> str:
    """The part of a long text that holds a place; an ellipsis where something is left out.

    >>> len(around("a" * 1000, 500)), around("short", 3)
    (402, 'short')
    """
    if len(text) <= LONG + 2:
        return text
    start = max(0, min(place - LONG // 2, len(text) - LONG))
    return f"{'…' if start else ''}{text[start : start + LONG]}{'…' if start + LONG < len(text) else ''}"


def in_words(task: Task, example: Example, target: Any) -> str:
    """A target as people write it: the text of an option, the words of an entity, all answers that count."""
    match task.kind:
        case "regress":
            return in_digits(target)
        case "several":
            return ", ".join(target) or "(none)"
        case "choice":
            return f"{chr(ord('A') + target)}: {around(example.texts[target + 1], 0)}"
        case "answer":
            said = [target] if isinstance(target, str) else list(dict.fromkeys(answer.text for answer in target))
            return " / ".join(text for text in said if text) or "(no answer)"
        case "tag":
            found = sorted(marks(task, target))
            return "; ".join(f"{' '.join(example.texts[a:b])} ({label})" for a, b, label in found) or "(none)"
        case _:
            return str(target)


def marks(task: Task, target: Any) -> set[Mark]:
    """What a target marks: a label for the whole, or for some of the words."""
    if task.kind == "tag":
        return entities(target) if in_spans(task.labels) else {(n, n + 1, tag) for n, tag in enumerate(target)}
    return {(0, 0, label) for label in ([target] if isinstance(target, str) else target)}


def kind_of(task: Task, label: str) -> str:
    """Of the entity that a tag is a part of; other labels stand for themselves."""
    return label[2:] if task.kind == "tag" and label != "O" and in_spans(task.labels) else label


def overlap(gold: AbstractSet[Mark], said: AbstractSet[Mark]) -> float:
    """F1 of what was said; 1 where there is nothing to say and nothing was said.

    >>> overlap({(0, 0, "a"), (0, 0, "b")}, {(0, 0, "b")}), overlap(set(), set())
    (0.6666666666666666, 1.0)
    """
    return 2 * len(gold & said) / (len(gold) + len(said)) if gold or said else 1.0
