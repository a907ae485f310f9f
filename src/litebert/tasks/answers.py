"""What a model says of each example -> a decision -> scores.

What it says (`Said`): probabilities of the labels or options; a number; probabilities of the tags of each word; or, of
a question, the answers it thinks of. Several models are heard by averaging what they say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.tasks.example import Answer, Example, Target, Task
from litebert.tasks.metrics import (
    DRAWS,
    Metric,
    Score,
    accuracy,
    answer_f1,
    entity_f1,
    exact_match,
    f1,
    macro_f1,
    matthews,
    mean_score,
    pearson,
    r2,
    score,
    spearman,
)

Numbers = NDArray[np.float64]
SIMPLE: dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "r2": r2,
    "pearson": pearson,
    "spearman": spearman,
}


@dataclass(frozen=True)
class Answers:
    """What may be the answer to a question, best first, and how much speaks for there being none."""

    texts: tuple[str, ...]
    probabilities: tuple[float, ...]
    none: float = float("-inf")
    starts: tuple[int, ...] = ()  # where in the passage each begins


Said = Numbers | Answers


def is_finite(said: Said) -> bool:
    return bool(np.isfinite(said.probabilities if isinstance(said, Answers) else said).all())


def decide(task: Task, said: Said) -> Target:
    """The label, labels, number, tags, text or option that is meant."""
    if isinstance(said, Answers):
        empty = not said.texts or (task.unanswerable and said.none > task.threshold)
        return "" if empty else said.texts[0]
    match task.kind:
        case "regress":
            return float(said[0])
        case "several":
            return tuple(label for label, share in zip(task.labels, said, strict=True) if share > 0.5)
        case "tag":
            return tuple(task.labels[int(at)] for at in said.argmax(-1))
        case "choice":
            return int(said.argmax())
        case _:
            return task.labels[int(said.argmax())]


def probability(task: Task, said: Said, guess: Target) -> float | None:
    """Of the decision as a whole; of a row of tags, that of the least sure; a number has none."""
    if isinstance(said, Answers):
        none = 1 / (1 + exp(-max(-500.0, said.none))) if task.unanswerable else 0.0
        return none if guess == "" else (1 - none) * said.probabilities[0]
    if task.kind == "several":
        return float(prod(max(share, 1 - share) for share in said.tolist()))
    if task.kind == "tag":
        return float(said.max(-1).min()) if said.size else 1.0
    return None if task.kind == "regress" else float(said.max())


def average(saids: Sequence[Said]) -> Said:
    """Of several models. An answer that one of them does not think of has no probability there."""
    if len(saids) == 1:
        return saids[0]
    if not isinstance(saids[0], Answers):
        mean: Numbers = np.mean(np.stack([np.asarray(said) for said in saids]), axis=0)
        return mean
    sums: dict[str, float] = {}
    heard = [said for said in saids if isinstance(said, Answers)]
    for said in heard:
        for text, share in zip(said.texts, said.probabilities, strict=True):
            sums[text] = sums.get(text, 0.0) + share / len(heard)
    best = sorted(sums, key=lambda text: -sums[text])
    places = {text: at for said in reversed(heard) for text, at in zip(said.texts, said.starts, strict=False)}
    starts = tuple(places[text] for text in best) if places else ()
    none = float(np.mean([said.none for said in heard]))
    return Answers(tuple(best), tuple(sums[text] for text in best), none, starts)


def scores(task: Task, examples: Sequence[Example], guesses: Sequence[Target]) -> list[Score]:
    """Every metric of the task with its standard error, the first one first; RACE's levels apart as well."""
    golds = [example.target for example in examples]
    found = [_score(task, name, golds, guesses) for name in task.metrics]
    groups = sorted({example.group for example in examples if example.group})
    for group in groups if len(groups) > 1 else ():
        rows = [number for number, example in enumerate(examples) if example.group == group]
        one = _score(task, task.metrics[0], [golds[row] for row in rows], [guesses[row] for row in rows])
        found.append(Score(f"{one.name} ({group})", one.value, one.error, one.count))
    return found


def _score(task: Task, name: str, golds: Sequence[Any], guesses: Sequence[Any]) -> Score:
    if task.kind == "answer":
        metric = {"f1": answer_f1, "em": exact_match}[name]
        return mean_score(name, [metric(texts(gold), guess) for gold, guess in zip(golds, guesses, strict=True)])
    if task.kind == "tag":
        if name == "entity_f1":
            return _entities(golds, guesses)
        pairs = [(a, b) for gold, guess in zip(golds, guesses, strict=True) for a, b in zip(gold, guess, strict=True)]
        return mean_score(name, [float(a == b) for a, b in pairs])
    if task.kind == "several":
        return _several(task, name, golds, guesses)
    if task.kind == "classify":
        golds, guesses = ([task.labels.index(each) for each in side] for side in (golds, guesses))
    return score(name, SIMPLE[name], np.array(golds), np.array(guesses))


def texts(answers: Sequence[Answer]) -> list[str]:
    return [answer.text for answer in answers]


def _entities(golds: Sequence[Any], guesses: Sequence[Any]) -> Score:
    """Sentences are drawn again, as they are what was sampled."""
    rng, count = np.random.default_rng(0), len(golds)

    def of(rows: Sequence[int]) -> float:
        return entity_f1([golds[row] for row in rows], [guesses[row] for row in rows])

    draws = [of(rows) for rows in rng.integers(0, count, (min(DRAWS, 100), count)).tolist()]
    return Score("entity_f1", of(range(count)), float(np.std(draws)), count)


def _several(task: Task, name: str, golds: Sequence[Any], guesses: Sequence[Any]) -> Score:
    if name == "exact":
        return mean_score(name, [float(set(a) == set(b)) for a, b in zip(golds, guesses, strict=True)])
    gold, guess = (np.array([[label in each for label in task.labels] for each in side]) for side in (golds, guesses))

    def micro(gold: Any, guess: Any) -> float:
        return f1(gold.ravel().astype(int), guess.ravel().astype(int))

    return score(name, micro, gold, guess)


def best_threshold(golds: Sequence[Sequence[Answer]], saids: Sequence[Answers]) -> float:
    """The bound on the score for no answer that gives the best F1: every question changes its answer at its own."""
    order = np.argsort([said.none for said in saids])
    answered = [answer_f1(texts(gold), said.texts[0] if said.texts else "") for gold, said in _zip(golds, saids)]
    silent = [answer_f1(texts(gold), "") for gold in golds]
    now = sum(silent)  # the threshold is below them all: nothing is answered
    best, at = now, float(min((said.none for said in saids), default=0.0)) - 1.0
    for place, number in enumerate(order):
        now += answered[number] - silent[number]
        if now > best:
            here = saids[number].none
            after = saids[order[place + 1]].none if place + 1 < len(order) else here + 1.0
            best, at = now, (here + after) / 2
    return at


def _zip(golds: Sequence[Sequence[Answer]], saids: Sequence[Answers]) -> list[tuple[Sequence[Answer], Answers]]:
    return list(zip(golds, saids, strict=True))
