"""Right answers and guesses -> a number, and how sure it is: metrics by their formulas, errors by drawing again.

Labels are whole numbers 0, 1, … except for the correlations, which take numbers, and `exact_match` and `answer_f1`,
which take texts as the SQuAD scripts do.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DRAWS = 500  # of the bootstrap behind a standard error

Numbers = NDArray[np.generic]
Metric = Callable[[Numbers, Numbers], float]


@dataclass(frozen=True)
class Score:
    """What a set of guesses scores, and the standard error of that for a set of this size."""

    name: str
    value: float
    error: float
    count: int


def accuracy(gold: Numbers, guess: Numbers) -> float:
    return float(np.mean(gold == guess))


def f1(gold: Numbers, guess: Numbers) -> float:
    """Of label 1."""
    right = float(np.sum((gold == 1) & (guess == 1)))
    found, wanted = float(np.sum(guess == 1)), float(np.sum(gold == 1))
    return 2 * right / (found + wanted) if right else 0.0


def counted(gold: Numbers, guess: Numbers) -> NDArray[np.float64]:
    """How often each label that occurs (rows) was taken for each (columns).

    >>> counted(np.array([2, 2, 7]), np.array([2, 7, 7])).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    labels = np.union1d(gold, guess)
    g, p = (np.searchsorted(labels, side) for side in (gold, guess))
    return np.bincount(g * len(labels) + p, minlength=len(labels) ** 2).reshape(len(labels), len(labels)).astype(float)


def macro_f1(gold: Numbers, guess: Numbers) -> float:
    """The mean over the labels that occur."""
    table = counted(gold, guess)
    return float(np.mean(2 * np.diag(table) / (table.sum(0) + table.sum(1))))


def matthews(gold: Numbers, guess: Numbers) -> float:
    """Matthews' correlation, for any number of labels; 0 where one side has only one."""
    table = counted(gold, guess)
    total, right = table.sum(), np.trace(table)
    true, said = table.sum(1), table.sum(0)
    below = (total**2 - (said**2).sum()) * (total**2 - (true**2).sum())
    return float((right * total - true @ said) / np.sqrt(below)) if below > 0 else 0.0


def pearson(gold: Numbers, guess: Numbers) -> float:
    """0 where one side does not vary."""
    a, b = (side.astype(float) - side.astype(float).mean() for side in (gold, guess))
    below = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / below) if below > 0 else 0.0


def r2(gold: Numbers, guess: Numbers) -> float:
    """By how much the squared errors are less than those of who always guesses the mean: below 0 they are more. 0 where
    what is right does not vary."""
    right, said = gold.astype(float), guess.astype(float)
    apart, missed = right - right.mean(), right - said
    return float(1 - missed @ missed / (apart @ apart)) if right.min() < right.max() else 0.0


def spearman(gold: Numbers, guess: Numbers) -> float:
    return pearson(ranks(gold), ranks(guess))


def ranks(values: Numbers) -> NDArray[np.float64]:
    """1 for the smallest; equal values share the mean of their places.

    >>> ranks(np.array([10, 30, 20, 20])).tolist()
    [1.0, 4.0, 2.5, 2.5]
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: NDArray[np.float64] = (last - (counts - 1) / 2)[place]
    return mean


def score(name: str, metric: Metric, gold: Numbers, guess: Numbers, seed: int = 0) -> Score:
    """The metric with its standard error: what it scatters by when as many rows are drawn again with replacement."""
    count = len(gold)
    value = metric(gold, guess)
    if metric is accuracy:
        return Score(name, value, float(np.sqrt(value * (1 - value) / max(1, count))), count)
    rng = np.random.default_rng(seed)
    draws = [metric(gold[rows], guess[rows]) for rows in rng.integers(0, count, (DRAWS, count))]
    if metric is r2:  # which a draw of numbers that are all but one puts anywhere below 0: what the middle 68 % span
        return Score(name, value, float(np.subtract(*np.quantile(draws, [0.84, 0.16])) / 2), count)
    return Score(name, value, float(np.std(draws)), count)


def mean_score(name: str, values: Sequence[float]) -> Score:
    """Of a number an example, such as a question's F1."""
    each = np.asarray(values, dtype=float)
    error = float(each.std() / np.sqrt(len(each))) if len(each) else 0.0
    return Score(name, float(each.mean()) if len(each) else 0.0, error, len(each))


def entities(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """(first, end, kind) of what a row of BIO (or IOB1, IOE, BIOES) tags marks, as conlleval reads them.

    >>> sorted(entities(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"]))
    [(0, 2, 'PER'), (3, 4, 'LOC'), (4, 5, 'LOC')]
    """
    if any(tag != "O" and tag[1:2] != "-" for tag in tags):  # parts of speech and the like: a word is an entity
        return {(at, at + 1, tag) for at, tag in enumerate(tags) if tag != "O"}
    found, start, before = set(), 0, "O"
    for at, tag in enumerate([*tags, "O"]):
        kind, was = tag[2:], before[2:]
        goes_on = tag[0] in "IE" and before[0] in "BI" and kind == was
        if before != "O" and not goes_on:
            found.add((start, at, was))
        if tag != "O" and not goes_on:
            start = at
        before = tag
    return found


def entity_f1(gold: Sequence[Sequence[str]], guess: Sequence[Sequence[str]]) -> float:
    """An entity is right if its place and its kind are."""
    right = found = wanted = 0
    for true, said in zip(gold, guess, strict=True):
        a, b = entities(true), entities(said)
        right, found, wanted = right + len(a & b), found + len(b), wanted + len(a)
    return 2 * right / (found + wanted) if found + wanted else 0.0


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = set(string.punctuation)


def normalise_answer(text: str) -> str:
    """As the official SQuAD scripts compare answers.

    >>> normalise_answer("The  Norman-conquest!")
    'normanconquest'
    """
    kept = "".join(char for char in text.lower() if char not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", kept).split())


def exact_match(golds: Sequence[str], guess: str) -> float:
    """1 if it is one of the right answers; no right answer means that none is to be given."""
    return max(float(gold == normalise_answer(guess)) for gold in _right(golds))


def answer_f1(golds: Sequence[str], guess: str) -> float:
    """Over the words that an answer and the nearest right one share."""
    return max(_overlap(gold.split(), normalise_answer(guess).split()) for gold in _right(golds))


def _right(golds: Sequence[str]) -> list[str]:
    """Normalised; those of which nothing is left do not count, as in the script for 2.0."""
    return [gold for gold in map(normalise_answer, golds) if gold] or [""]


def _overlap(gold: list[str], guess: list[str]) -> float:
    if not gold or not guess:
        return float(gold == guess)
    shared = sum((Counter(gold) & Counter(guess)).values())
    return 2 * shared / (len(gold) + len(guess))
