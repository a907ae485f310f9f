"""Models and labelled examples -> `Evaluation`: scores, confusion, calibration, and the examples that went worst.

Several models are an ensemble: what they say is averaged before anything is decided.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from pathlib import Path
from typing import Any

import numpy as np

from litebert.config import UserError
from litebert.corpus.read import is_unicode
from litebert.infer.predict import Asked, check_ensemble, listen
from litebert.report.cases import Case, Mark, as_case, kind_of, marks, overlap
from litebert.tasks.answers import Answers, Said, best_threshold, decide, probability, scores, texts
from litebert.tasks.example import Example, Target, Task
from litebert.tasks.features import AT_ONCE
from litebert.tasks.glue import SPLITS
from litebert.tasks.metrics import Score, exact_match
from litebert.tasks.own import guess_columns, read_own
from litebert.tasks.read import benchmark, missing_classes, read_split
from litebert.tasks.targets import in_digits

BINS = 10  # of the confidences from 0 to 1
WORST = 20  # examples that are shown
A_FEW = 128  # examples between two signs of life on a CPU


@dataclass(frozen=True)
class Confusion:
    """How often (row) what is right was taken for (column) what was said."""

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class LabelScore:
    """Of one label or kind of entity: how often it is right, was said, and both."""

    label: str
    wanted: int
    found: int
    right: int

    @property
    def precision(self) -> float:
        return self.right / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        return self.right / self.wanted if self.wanted else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.right / (self.found + self.wanted) if self.right else 0.0


@dataclass(frozen=True)
class Bin:
    """The guesses with a confidence in one tenth: how many, how confident, and how many of them were right."""

    count: int
    confidence: float  # the mean
    accuracy: float


@dataclass(frozen=True)
class Calibration:
    """Whether a confidence of 80 % is right in 80 of 100 cases."""

    error: float  # expected calibration error: the mean distance of confidence and accuracy, each guess counting once
    bins: tuple[Bin, ...]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What there is to say about a model on a set of examples."""

    task: Task  # with the threshold that decided
    scores: tuple[Score, ...]
    examples: int
    cut: int  # examples of which a model did not see everything
    confusion: Confusion | None = None  # classify, tag
    labels: tuple[LabelScore, ...] = ()  # classify, several, tag
    calibration: Calibration | None = None  # classify, several, choice, answer
    points: tuple[tuple[float, float], ...] = ()  # regress: what is right, what was said
    worst: tuple[Case, ...] = ()
    notes: tuple[str, ...] = ()
    passes: float | None = None  # that an example took on average, where it was said how many


def read_examples(
    taught: Task, data: Path, name: str = "", split: str = "", text: Sequence[str] = (), label: Sequence[str] = ()
) -> tuple[Task, list[Example]]:
    """What is asked and the labelled examples of it: a benchmark's split, or a user's own file by the columns that
    travel with the model unless others are said."""
    if name:
        task = benchmark(name)
        if text or label:
            raise UserError(f"task {name!r} has columns of its own; leave --text and --label out")
        if (task.kind, sorted(task.labels)) != (taught.kind, sorted(taught.labels)):
            raise UserError(f"{name} asks for {task.describe()}, and the model was taught {taught.describe()}")
        chosen = split or "dev"
        if chosen not in SPLITS:
            raise UserError(f"--split {chosen!r}; allowed: {', '.join(SPLITS)}")
        examples = list(read_split(task, data, chosen))
    else:
        if split:
            raise UserError(f"--split {split} is a part of a benchmark; say which by --task, or leave it out")
        if data.is_dir():
            raise UserError(f"{data} is a folder; give a file of examples, or say by --task which benchmark it holds")
        task = _columns(taught, data, tuple(text), tuple(label))
        examples = list(read_own(data, task))
    _check(examples, data)
    return task, examples


def _columns(taught: Task, data: Path, text: tuple[str, ...], label: tuple[str, ...]) -> Task:
    """The model's task with the columns of this file; what nobody said is looked up in the file."""
    chosen = replace(taught, texts=text or taught.texts, label=label or taught.label)
    return chosen if chosen.texts and chosen.label else guess_columns(data, chosen)


def _check(examples: Sequence[Example], data: Path) -> None:
    if not examples:
        raise UserError(f"{data} holds no example; there is nothing to evaluate")
    bare = next((example for example in examples if example.target is None), None)
    if bare is not None:
        raise UserError(f"{bare.where}: no label, so there is nothing to compare with; evaluate on labelled data")
    torn = next((example for example in examples if not all(map(is_unicode, example.texts))), None)
    if torn is not None:
        raise UserError(f"{torn.where}: half a surrogate pair stands there, which is no character; mend or remove it")


def evaluate(
    models: Sequence[Asked],
    examples: Sequence[Example],
    task: Task | None = None,
    tune_threshold: bool = False,
    say: Callable[[int], object] = lambda done: None,
) -> Evaluation:
    """Ask the models about every example and compare. `task` says what is scored (default: what was taught);
    `say` hears how many examples are done."""
    task = task or models[0].task
    deciding = how_to_decide(models, task, tune_threshold)
    saids: list[Said] = []
    passes: list[int] = []
    cut = 0
    for some in parts(models, examples):
        for _, said, lost in listen(models, some, passes.append):
            saids.append(said)
            cut += lost > 0
        say(len(saids))
    if tune_threshold:
        deciding = tuned(deciding, examples, saids)
    guesses = [decide(deciding, said) for said in saids]
    sure = [probability(deciding, said, guess) for said, guess in zip(saids, guesses, strict=True)]
    pairs = [pair for each in zip(examples, guesses, saids, sure, strict=True) for pair in _certain(deciding, *each)]
    return Evaluation(
        task=replace(task, threshold=deciding.threshold),
        scores=tuple(scores(task, examples, guesses)),
        examples=len(examples),
        cut=cut,
        confusion=confusion(task, examples, guesses),
        labels=label_scores(task, examples, guesses),
        calibration=calibrate(pairs) if pairs else None,
        points=tuple(_points(examples, guesses)) if task.kind == "regress" else (),
        worst=worst(task, examples, guesses, sure),
        notes=(
            *notes_on(models, task, deciding, examples, cut),
            *_threshold(deciding, tune_threshold),
            *_distance(task, examples, guesses),
        ),
        passes=sum(passes) / len(passes) if models[0].settle or models[0].passes else None,
    )


def parts(models: Sequence[Asked], examples: Sequence[Example]) -> Iterator[Sequence[Example]]:
    """As many at a time as give a sign of life now and then."""
    step = A_FEW if models[0].device.type == "cpu" else AT_ONCE
    return (examples[first : first + step] for first in range(0, len(examples), step))


def tuned(deciding: Task, examples: Sequence[Example], saids: Sequence[Said]) -> Task:
    """With the threshold for no answer that suits these very questions best."""
    golds: list[Any] = [example.target for example in examples]
    best = best_threshold(golds, [said for said in saids if isinstance(said, Answers)])
    return replace(deciding, threshold=best)


def how_to_decide(models: Sequence[Asked], task: Task, tune_threshold: bool) -> Task:
    """How what is said becomes a guess: labels in the models' order, and their threshold if there may be no answer."""
    first = check_ensemble(models)
    silent = first.unanswerable and task.unanswerable
    if tune_threshold and not silent:
        raise UserError("--tune-threshold is for questions that may have no answer, on a model that was taught such")
    return replace(first, unanswerable=silent)


def _certain(
    task: Task, example: Example, guess: Target, said: Said, sure: float | None
) -> Iterable[tuple[float, bool]]:
    """(confidence, whether it was right) of each decision in a guess: several labels are as many decisions."""
    gold: Any = example.target
    if task.kind == "several" and not isinstance(said, Answers):
        for label, share in zip(task.labels, said.tolist(), strict=True):
            yield max(share, 1 - share), (share > 0.5) == (label in gold)
    elif sure is not None and task.kind != "tag":
        yield sure, right(task, gold, guess)


def calibrate(pairs: Sequence[tuple[float, bool]]) -> Calibration:
    """(confidence, right) -> ten bins of equal width and the expected calibration error.

    >>> calibrate([(1.0, True), (1.0, False), (0.5, True), (0.5, False)]).error
    0.25
    """
    inside: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for pair in pairs:
        inside[min(BINS - 1, int(pair[0] * BINS))].append(pair)
    bins, error = [], 0.0
    for some in inside:
        count = len(some)
        confidence, accuracy = (sum(each[side] for each in some) / max(1, count) for side in (0, 1))
        bins.append(Bin(count, confidence, accuracy))
        error += count * abs(confidence - accuracy) / len(pairs)
    return Calibration(error, tuple(bins))


def confusion(task: Task, examples: Sequence[Example], guesses: Sequence[Target]) -> Confusion | None:
    """Of classes by example; of tags by word, B and I of a kind of entity being one."""
    if task.kind not in ("classify", "tag"):
        return None
    counts: Counter[tuple[str, str]] = Counter()
    for example, guess in zip(examples, guesses, strict=True):
        gold: Any = example.target
        said: Any = guess
        if task.kind == "classify":
            counts[gold, said] += 1
        else:
            counts.update((kind_of(task, a), kind_of(task, b)) for a, b in zip(gold, said, strict=True))
    labels = tuple(dict.fromkeys(kind_of(task, label) for label in task.labels))
    return Confusion(labels, tuple(tuple(counts[gold, said] for said in labels) for gold in labels))


def label_scores(task: Task, examples: Sequence[Example], guesses: Sequence[Target]) -> tuple[LabelScore, ...]:
    """Every label by itself; of tags every kind of entity."""
    if task.kind not in ("classify", "several", "tag"):
        return ()
    wanted, found, both = Counter[str](), Counter[str](), Counter[str]()
    for example, guess in zip(examples, guesses, strict=True):
        gold, said = marks(task, example.target), marks(task, guess)
        for counter, some in ((wanted, gold), (found, said), (both, gold & said)):
            counter.update(_names(some))
    names = [kind_of(task, label) for label in task.labels if task.kind != "tag" or label != "O"]
    return tuple(LabelScore(name, wanted[name], found[name], both[name]) for name in dict.fromkeys(names))


def _names(some: Iterable[Mark]) -> Iterable[str]:
    return (label for _, _, label in some)


def worst(
    task: Task, examples: Sequence[Example], guesses: Sequence[Target], sure: Sequence[float | None]
) -> tuple[Case, ...]:
    """Wrong ones: the most confident first; numbers by their distance; sets of labels and tags by their overlap."""
    badness = []
    for number, (example, guess, share) in enumerate(zip(examples, guesses, sure, strict=True)):
        gold: Any = example.target
        if not right(task, gold, guess):
            badness.append((_badness(task, gold, guess, share or 0.0), number))
    chosen = [number for _, number in nsmallest(WORST, badness)]
    return tuple(as_case(task, examples[number], guesses[number], sure[number]) for number in chosen)


def right(task: Task, gold: Any, guess: Any) -> bool:
    """Wholly so: the same label, number or option, the same labels, or one of the answers."""
    if task.kind == "answer":
        return exact_match(texts(gold), guess) == 1
    return bool(set(gold) == set(guess) if task.kind == "several" else gold == guess)


def _badness(task: Task, gold: Any, guess: Any, sure: float) -> tuple[float, ...]:
    """The lower, the worse."""
    if task.kind == "regress":
        return (-abs(gold - guess),)
    if task.kind not in ("several", "tag"):
        return (-sure,)
    shared = overlap(marks(task, gold), marks(task, guess))
    if task.kind == "several":
        return (shared, -sure)
    return (shared, sum(a == b for a, b in zip(gold, guess, strict=True)) / len(gold))


def _points(examples: Sequence[Example], guesses: Sequence[Any]) -> Iterable[tuple[float, float]]:
    golds: list[Any] = [example.target for example in examples]
    return zip(golds, guesses, strict=True)


def notes_on(
    models: Sequence[Asked], task: Task, deciding: Task, examples: Sequence[Example], cut: int
) -> Iterable[str]:
    """What a reader of the scores should know."""
    if len(models) > 1:
        yield f"what {len(models)} models say is averaged"
    if cut:
        length = min(model.reading.length for model in models)
        yield f"{cut:,} of {len(examples):,} texts are longer than the {length} pieces that are read, and were cut"
    lacking = missing_classes(task, examples) if task.kind in ("classify", "several", "tag") else []
    if lacking:
        more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
        yield f"no example of {', '.join(map(repr, lacking[:5]))}{more}: the scores say nothing of it"
    if task.kind == "answer" and not deciding.unanswerable and any(not example.target for example in examples):
        yield "some questions have no answer, and the model was taught that all have one: it always answers"


def _distance(task: Task, examples: Sequence[Example], guesses: Sequence[Target]) -> Iterable[str]:
    """How far numbers are off, in what they count: no share, so no score."""
    if task.kind == "regress":
        gold, said = np.array([*_points(examples, guesses)]).T
        sizes = np.abs(gold - said).mean(), np.sqrt(np.square(gold - said).mean()), gold.std()
        mean, root, own = (in_digits(float(each)) for each in sizes)
        yield f"guesses are off by {mean} on average (root mean square {root}); the numbers themselves deviate by {own}"


def _threshold(deciding: Task, tuned: bool) -> Iterable[str]:
    if tuned:
        yield (
            f"the threshold for no answer, {deciding.threshold:.3f}, was chosen on these very questions: "
            "on others the scores will be a little lower"
        )
    elif deciding.unanswerable:
        yield f"no answer is given where the score for that is above {deciding.threshold:.3f}, the model's threshold"
