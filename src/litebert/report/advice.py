"""Measured models -> whether the usual advice on when to use which member holds among them, by a rule that is said."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import hypot
from typing import Any, Literal

from litebert.report.compare import BATCH, Measured
from litebert.report.info import papers

MARGIN = 0.05  # of a time: below it the machine's noise decides
ERRORS = 2.0  # standard errors of a difference of scores: below it chance decides

Verdict = Literal["agreed", "not agreed", "cannot be told here"]
RULES = {
    "albert": "the family's smallest weights on disk against the smallest of the others",
    "roberta": f"the family's best score against the best of the others; less than {ERRORS:g} standard errors of the "
    "difference tell nothing",
    "distilbert": "the family's best against the best of the others in each time that was measured; they must agree, "
    f"and a difference below {100 * MARGIN:g} % tells nothing",
}

TIMES: dict[str, Callable[[Measured], float | None]] = {  # milliseconds of a text
    "one at a time on a CPU": lambda each: each.cpu_ms,
    f"{BATCH} at once on a CPU": lambda each: 1e3 / each.cpu_per_second,
    "one at a time on a GPU": lambda each: each.gpu_ms,
    f"{BATCH} at once on a GPU": lambda each: 1e3 / each.gpu_per_second if each.gpu_per_second else None,
}


@dataclass(frozen=True)
class Advice:
    """A piece of advice and what becomes of it here."""

    when: str
    family: str
    rule: str
    verdict: Verdict
    why: str


@dataclass(frozen=True)
class Contest:
    """The best of a family and the best of the others in one measure."""

    better: int  # 1: the family, -1: the others, 0: nothing can be told
    why: str


def check_advice(models: Sequence[Measured]) -> list[Advice]:
    found = []
    for when, family in papers()["advice"]["rows"]:
        verdict, why = _verdict(family, models)
        found.append(Advice(when, family, RULES[family], verdict, why))
    return found


def _verdict(family: str, models: Sequence[Measured]) -> tuple[Verdict, str]:
    ours = [model for model in models if model.family == family]
    others = [model for model in models if model.family != family]
    if not ours:
        return "cannot be told here", f"no {family} is among the models"
    if not others:
        return "cannot be told here", f"all of the models are {family}s"
    contests = _contests(family, ours, others)
    if not contests:
        return "cannot be told here", "no score was measured; say --task and --data, or --data alone"
    why = "; ".join(each.why for each in contests)
    ways = {each.better for each in contests}
    if ways == {1}:
        return "agreed", why
    return ("not agreed" if ways == {-1} else "cannot be told here"), why


def _contests(family: str, ours: Sequence[Measured], others: Sequence[Measured]) -> list[Contest]:
    if family == "albert":
        return [_least(ours, others, lambda each: each.bytes, 0.0, lambda value: f"{value / 2**20:.1f} MiB")]
    if family == "roberta":
        return _scores(ours, others) if all(each.scores for each in (*ours, *others)) else []
    found = []
    for what, value in TIMES.items():
        if all(value(each) is not None for each in (*ours, *others)):
            contest = _least(ours, others, value, MARGIN, "{:.2f} ms".format)
            found.append(replace(contest, why=f"{what} {contest.why}"))
    return found


def _least(
    ours: Sequence[Measured],
    others: Sequence[Measured],
    value: Callable[[Measured], Any],
    margin: float,
    say: Callable[[float], str],
) -> Contest:
    mine, theirs = min(ours, key=value), min(others, key=value)
    a, b = value(mine), value(theirs)
    told = f"{mine.name} {say(a)}, {theirs.name} {say(b)}"
    return Contest(1 if a < b * (1 - margin) else -1 if b < a * (1 - margin) else 0, told)


def _scores(ours: Sequence[Measured], others: Sequence[Measured]) -> list[Contest]:
    mine, theirs = (max(some, key=lambda each: each.scores[0].value) for some in (ours, others))
    a, b = mine.scores[0], theirs.scores[0]
    told = ", ".join(
        f"{name} {100 * one.value:.2f} ± {100 * one.error:.2f}" for name, one in ((mine.name, a), (theirs.name, b))
    )
    gap = a.value - b.value
    clear = abs(gap) > ERRORS * hypot(a.error, b.error)
    return [Contest((1 if gap > 0 else -1) if clear else 0, f"{a.name} × 100: {told}")]
