"""What every task is made of: an `Example`, and a `Task` that says what kind of answer it wants."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from litebert.config import UserError
from litebert.strict import check_types

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


METRICS: dict[Kind, tuple[str, ...]] = {  # the first decides which checkpoint is best
    "classify": ("accuracy", "macro_f1"),
    "several": ("micro_f1", "exact"),
    "regress": ("r2", "pearson", "spearman"),  # correlations do not see that every guess is too small
    "tag": ("entity_f1", "accuracy"),
    "answer": ("f1", "em"),
    "choice": ("accuracy",),
}


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a model is asked. It travels with the model."""

    kind: Kind
    name: str = ""  # of a benchmark; a user's own file has none
    labels: tuple[str, ...] = ()  # names, in the order of the logits
    metrics: tuple[str, ...] = ()  # none said: those of its kind
    texts: tuple[str, ...] = ()  # columns of a user's file
    label: tuple[str, ...] = ()  # one column; `several` may have one for each label
    unanswerable: bool = False  # answer: some questions have none
    threshold: float = 0.0  # answer: none is given where the score for that is above this
    mean: float = 0.0  # regress: the network says how many scales a number is from the mean
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_types(self)
        if not self.metrics:
            object.__setattr__(self, "metrics", METRICS[self.kind])
        if self.kind in ("classify", "several", "tag") and not self.labels:
            raise UserError(f"a task of kind {self.kind!r} needs the names of its labels")
        if not self.scale > 0:
            raise UserError(f"scale = {self.scale:g} must be above 0: numbers are taught in parts of it")

    def as_table(self) -> dict[str, Any]:
        """Plain values; no mean and scale where numbers, if there are any, are taught as they are."""
        own = ("mean", "scale") if (self.mean, self.scale) == (0, 1) else ()
        return {key: value for key, value in asdict(self).items() if key not in own}

    def describe(self) -> str:
        """One line for people."""
        where = f", from {' and '.join(repr(name) for name in self.label)}" if self.label else ""
        named = f" ({len(self.labels)} labels: {', '.join(self.labels[:8])}{', …' if len(self.labels) > 8 else ''})"
        return f"{self.kind}{named if self.labels else ''}{where}"
