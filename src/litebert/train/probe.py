"""A task's files and a frozen encoder -> the scores of a linear probe on its vectors.

What a plain linear model reads off the vectors is what the encoder knows of the task before it is taught any.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from litebert.config import UserError
from litebert.infer.batch import SENTENCE
from litebert.infer.embed import Embedder, Vectors, embed_examples
from litebert.recipe import TaskConfig
from litebert.tasks.answers import scores
from litebert.tasks.example import Example, Target, Task
from litebert.tasks.metrics import Score
from litebert.tasks.read import hold_out, missing_classes
from litebert.train.lesson import read_files, task_of

STRENGTHS = tuple(10.0**power for power in range(4, -4, -1))  # what `auto` tries; of equals, the first is taken
CHOOSING = 0.2  # share of the training examples that it decides by
ROUNDS = 1000  # of the fit, at most

Guesser = Callable[[Vectors], list[Target]]


@dataclass(frozen=True)
class Probed:
    """What a probe scores, and what it was fitted with."""

    task: Task
    scores: list[Score]
    strength: float
    train: int
    dev: int
    width: int
    cut: int
    notes: tuple[str, ...]


def probe(
    how: Embedder,
    config: TaskConfig,
    strength: float | None = 1.0,  # of the penalty on the weights; None: chosen on a part of the training examples
    seed: int = 0,
    tell: Callable[[str], None] = lambda line: None,
) -> Probed:
    """Vectors of the train and dev examples, a linear model of the first, its scores on the second."""
    _sklearn()
    if strength is not None and not strength > 0:
        raise UserError(f"strength = {strength} must be above 0, or auto")
    task = task_of(config)
    if task.kind not in SENTENCE:
        raise UserError(
            f"a probe reads one vector a text, which answers {', '.join(SENTENCE)}, and this is a task of kind "
            f"{task.kind!r}; teach it by: litebert finetune"
        )
    train, dev, said = read_files(replace(config, split_seed=seed), task)
    for side, examples in (("train", train), ("dev", dev)):
        if not examples:
            raise UserError(f"nothing to probe with: the {side} file holds no example")
    notes = [f"task: {task.describe()}", said]
    lacking = missing_classes(task, dev)
    if lacking:
        notes.append(f"nothing to score of {', '.join(map(repr, lacking[:5]))}: the scores say nothing of it")
    (known, cut), (asked, more) = (_embedded(how, examples, tell) for examples in (train, dev))
    if cut + more:
        notes.append(
            f"{cut + more:,} of {len(train) + len(dev):,} texts are longer than {how.reading.length} pieces "
            "and were cut"
        )
    if strength is None:
        strength = choose_strength(task, known, train, seed)
        notes.append(f"strength {strength:g}, chosen on {100 * CHOOSING:.0f} % of the training examples (seed {seed})")
    guess, settled = fit_probe(task, known, train, strength)
    if not settled:
        notes.append(f"the fit had not settled after {ROUNDS:,} rounds; a greater --strength settles sooner")
    found = scores(task, dev, guess(asked))
    return Probed(task, found, strength, len(train), len(dev), how.width, cut + more, tuple(notes))


def _embedded(how: Embedder, examples: Sequence[Example], tell: Callable[[str], None]) -> tuple[Vectors, int]:
    """All vectors, and how many texts were cut."""
    vectors, done, cut = np.empty((len(examples), how.width), np.float32), 0, 0
    for chunk in embed_examples(how, examples):
        vectors[done : done + len(chunk.keys)] = chunk.vectors
        done, cut = done + len(chunk.keys), cut + chunk.cut
        tell(f"{done:,} of {len(examples):,} texts")
    return vectors, cut


def choose_strength(task: Task, vectors: Vectors, examples: Sequence[Example], seed: int) -> float:
    """The strength whose probe scores best on a part that it was not fitted to."""
    numbered = [replace(each, key=str(row)) for row, each in enumerate(examples)]
    try:
        parts = hold_out(numbered, task, CHOOSING, seed)
    except UserError:
        raise UserError(f"{len(examples)} examples are too few to choose a strength by; say it: --strength 1") from None
    rest, kept = ([int(each.key) for each in part] for part in parts)
    judge = replace(task, metrics=task.metrics[:1])

    def value(strength: float) -> float:
        guess, _ = fit_probe(task, vectors[rest], [examples[row] for row in rest], strength)
        return scores(judge, [examples[row] for row in kept], guess(vectors[kept]))[0].value

    return max(STRENGTHS, key=value)


def fit_probe(task: Task, vectors: Vectors, examples: Sequence[Example], strength: float) -> tuple[Guesser, bool]:
    """What a linear model of these vectors says of others, and whether its fit settled.

    Each number is brought to mean 0 and deviation 1 first. The penalty is strength times the squared weights.
    """
    learn = _sklearn()
    scale = learn.preprocessing.StandardScaler().fit(vectors)
    x = scale.transform(vectors)
    targets: list[Any] = [each.target for each in examples]
    if task.kind == "regress":
        ridge = learn.linear_model.Ridge(alpha=strength).fit(x, np.array(targets, dtype=np.float64))
        return (lambda other: ridge.predict(scale.transform(other)).astype(float).tolist()), True
    if task.kind == "classify":
        if len(set(targets)) == 1:
            raise UserError(f"every training example has the label {targets[0]!r}; a probe needs two to tell apart")
        one, settled = _logistic(x, targets, strength)
        return (lambda other: one.predict(scale.transform(other)).tolist()), settled
    found = {}
    for label in task.labels:
        here = [label in each for each in targets]
        found[label] = _logistic(x, here, strength) if len(set(here)) == 2 else (here[0], True)

    def several(other: Vectors) -> list[Target]:
        y = scale.transform(other)
        said = {
            label: [each] * len(y) if isinstance(each, bool) else each.predict(y).tolist()
            for label, (each, _) in found.items()
        }
        return [tuple(label for label in task.labels if said[label][row]) for row in range(len(y))]

    return several, all(settled for _, settled in found.values())


def _logistic(x: Vectors, targets: Sequence[Any], strength: float) -> tuple[Any, bool]:
    learn = _sklearn()
    model = learn.linear_model.LogisticRegression(C=1 / strength, max_iter=ROUNDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", learn.exceptions.ConvergenceWarning)  # said in a note instead
        model.fit(x, targets)
    return model, bool(max(model.n_iter_) < ROUNDS)


def _sklearn() -> Any:
    try:
        import sklearn
        import sklearn.exceptions
        import sklearn.linear_model
        import sklearn.preprocessing
    except ImportError:
        raise UserError("a probe needs scikit-learn; install it with: pip install 'litebert[probe]'") from None
    return sklearn
