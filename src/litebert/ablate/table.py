"""Results of cells -> a table: ours with its error, the paper's beside it, and a verdict on each of its findings."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from litebert.ablate.grid import Finding, Measure
from litebert.ablate.run import Job

Unit = Literal["count", "whole", "ratio", "percent", "points", "number"]
Verdict = Literal["seen", "not seen", "within noise", "not measured"]
TIMES = 2.0  # standard errors that a difference must exceed
PLAIN: dict[str, tuple[str, str, Unit]] = {  # column: our title, the paper's column, its unit
    "parameters": ("parameters", "parameters", "count"),
    "speed": ("speed-up", "speedup", "ratio"),
    "steps": ("steps", "steps", "whole"),
    "masked": ("masked accuracy", "MLM", "percent"),
    "perplexity": ("perplexity", "perplexity", "number"),
    "next": ("next accuracy", "NSP", "percent"),
    "order": ("order accuracy", "SOP", "percent"),
    "next-frozen": ("next, frozen", "", "percent"),
    "order-frozen": ("order, frozen", "", "percent"),
    "average": ("average of the tasks", "Avg", "percent"),
    "change": ("change of the average", "change", "points"),
}
SMOKE = "This is a smoke table: it shows that every cell runs. Its models have learned next to nothing, and its \
verdicts mean nothing."


@dataclass(frozen=True)
class Column:
    key: str
    title: str
    printed: str  # the paper's column
    unit: Unit


@dataclass(frozen=True)
class Figure:
    """A number of the table in its column's unit; shares are in percent."""

    value: float
    error: float
    seeds: tuple[float, ...]
    probed: bool = False  # by a head on frozen states


@dataclass(frozen=True)
class Row:
    cell: str
    figures: dict[str, Figure]
    printed: dict[str, Any]  # all that the paper says of it
    failed: str | None


@dataclass(frozen=True)
class Judged:
    """A finding in one column."""

    claim: str
    column: str
    verdict: Verdict
    difference: float | None = None
    error: float | None = None


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    source: str
    scale: str
    seeds: int
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    findings: tuple[Judged, ...]
    rule: str
    notes: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def tabulate(job: Job, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    columns = columns_of(job)
    raw = {name: [per_seed(each, columns) for each in done if not each["failed"]] for name, done in found.items()}
    spread = {column.key: pooled([_values(seeds, column.key) for seeds in raw.values()]) for column in columns}
    figures = {
        name: {
            column.key: figure
            for column in columns
            if (figure := figure_of(seeds, column.key, spread[column.key])) is not None
        }
        for name, seeds in raw.items()
    }
    figures = relative(figures, job.grid.reference, columns)
    rows = tuple(
        Row(each.name, figures[each.name], dict(each.cell.printed), reason(found[each.name], job.seeds))
        for each in job.plan
    )
    asked = [each for each in job.grid.findings if {each.cell, *each.than} <= figures.keys()]
    judged = tuple(
        judge(finding, column, figures)
        for finding in asked
        for column in columns
        if column.key in keys(finding.columns, job)
    )
    notes = [
        job.grid.note,
        budget(job),
        job.how.note,
        SMOKE if job.scale == "smoke" else "",
        left_out(len(job.grid.findings) - len(asked)),
        *_remarks(rows, judged),
        taken(found),
        made_on(found),
    ]
    kept = tuple(note for note in notes if note)
    grid = job.grid
    return Table(job.name, grid.title, grid.source, job.scale, job.seeds, columns, rows, judged, rule(job.seeds), kept)


def budget(job: Job) -> str:
    """How long the cells were trained, where that is the same for all, and all that they were."""
    trained = [each for each in job.plan if not each.cell.of]
    found = {(each.recipe.run.steps, each.recipe.run.budget_minutes) for each in trained}
    alike = len(found) == 1 < len(trained) and not any(each.cell.start or each.cell.as_long_as for each in trained)
    steps, minutes = found.pop() if alike else (0, 0)
    if steps:
        return f"Every cell was trained for {steps:,} steps."
    return f"Every cell was trained for {minutes:g} min: equal time, not equal steps." if minutes else ""


def left_out(count: int) -> str:
    """What --cells leaves open."""
    return f"Findings about cells that were not asked for: {count}." if count else ""


def columns_of(job: Job) -> tuple[Column, ...]:
    found = []
    for name in job.grid.columns:
        if name == "tasks":
            found += [Column(f"task:{task}", t.title, t.printed, "percent") for task, t in job.trials.items()]
        elif name not in ("average", "change") or job.trials:
            found.append(Column(name, *PLAIN[name]))
    return tuple(found)


def keys(columns: Sequence[Measure], job: Job) -> set[str]:
    tasks = {f"task:{task}" for task in job.trials}
    return {name for name in columns if name != "tasks"} | (tasks if "tasks" in columns else set())


def per_seed(result: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, dict[str, float]]:
    """The figures of one run of a cell, in the columns' units; the mean of its tasks among them."""
    found: dict[str, dict[str, float]] = dict(result["figures"])
    tasks = [found[column.key] for column in columns if column.key.startswith("task:") and column.key in found]
    if tasks:
        error = math.sqrt(sum(each["error"] ** 2 for each in tasks)) / len(tasks)
        found["average"] = {"value": statistics.fmean(each["value"] for each in tasks), "error": error}
        found["change"] = found["average"]
    scale = {column.key: 100.0 if column.unit in ("percent", "points") else 1.0 for column in columns}
    return {
        key: each | {"value": each["value"] * scale[key], "error": each["error"] * scale[key]}
        for key, each in found.items()
        if key in scale
    }


def _values(seeds: Sequence[Mapping[str, Mapping[str, float]]], key: str) -> list[float]:
    return [each[key]["value"] for each in seeds if key in each]


def pooled(cells: Sequence[Sequence[float]]) -> float:
    """The variance between seeds, from all cells of a column together: two seeds of one cell say little of it.

    >>> pooled([[1.0, 3.0], [10.0, 12.0], [5.0]])
    2.0
    """
    freedom = sum(len(values) - 1 for values in cells if values)
    squares = sum((value - statistics.fmean(values)) ** 2 for values in cells for value in values)
    return squares / freedom if freedom else 0.0


def figure_of(seeds: Sequence[Mapping[str, Mapping[str, float]]], key: str, variance: float) -> Figure | None:
    """The mean over the seeds. Its error joins that of the set it was scored on, which the seeds share, and that of the
    mean itself."""
    values = _values(seeds, key)
    if not values:
        return None
    own = statistics.fmean(each[key]["error"] for each in seeds if key in each)
    error = math.sqrt(own**2 + variance / len(values))
    probed = any(each.get(key, {}).get("probed") for each in seeds)
    return Figure(statistics.fmean(values), error, tuple(values), bool(probed))


def relative(
    figures: dict[str, dict[str, Figure]], reference: str, columns: Sequence[Column]
) -> dict[str, dict[str, Figure]]:
    """Speeds as a multiple of the reference cell's, changes as what is above its average; without it they are left
    out."""
    asked = [column for column in columns if column.unit in ("ratio", "points")]
    against = figures.get(reference, {})
    found = {name: dict(each) for name, each in figures.items()}
    for column in asked:
        for name, each in found.items():
            if column.key in each:
                mine, base = each.pop(column.key), against.get(column.key)
                if base is not None:
                    each[column.key] = _against(mine, base, column.unit, name == reference)
    return found


def _against(mine: Figure, base: Figure, unit: Unit, same: bool) -> Figure:
    if unit == "ratio":
        value, parts = mine.value / base.value, (mine.error / mine.value, base.error / base.value)
        made = replace(mine, value=value, error=value * math.hypot(*parts))
        made = replace(made, seeds=tuple(each / base.value for each in mine.seeds))
    else:
        value = mine.value - base.value
        made = replace(mine, value=value, error=math.hypot(mine.error, base.error))
        made = replace(made, seeds=tuple(each - base.value for each in mine.seeds))
    return replace(made, error=0.0) if same else made


def judge(finding: Finding, column: Column, figures: Mapping[str, Mapping[str, Figure]]) -> Judged:
    """By the rule that the table states. Against several cells, the one that speaks most against the claim is told."""
    mine = figures.get(finding.cell, {}).get(column.key)
    others = [figures.get(name, {}).get(column.key) for name in finding.than]
    if finding.value is not None:
        others = [Figure(finding.value, 0.0, ())]
    known = [other for other in others if other is not None]
    if mine is None or len(known) < len(others):
        return Judged(finding.claim, column.key, "not measured")
    pairs = [(mine.value - other.value, math.hypot(mine.error, other.error)) for other in known]
    if finding.way == "near":
        difference, error = max(pairs, key=lambda pair: abs(pair[0]) + TIMES * pair[1])
        apart = abs(difference)
        seen, against = apart + TIMES * error <= finding.margin, apart - TIMES * error > finding.margin
    else:
        sign = 1.0 if finding.way == "above" else -1.0
        difference, error = min(pairs, key=lambda pair: (sign * pair[0]) - TIMES * pair[1])
        seen = all(sign * d > TIMES * e for d, e in pairs)
        against = any(sign * d < -TIMES * e for d, e in pairs)
    verdict: Verdict = "seen" if seen else "not seen" if against else "within noise"
    return Judged(finding.claim, column.key, verdict, difference, error)


def rule(seeds: int) -> str:
    """What the verdicts go by, said under every table."""
    error = "The error of a figure is that of the dev or held-out set"
    if seeds > 1:
        error += f" joined with that of the mean of {seeds} seeds, whose spread is pooled over the column"
    else:
        error += " alone: with one seed, how much seeds differ is not in it"
    return (
        f"{error}; of a speed, 2 % of it. A finding is seen where the difference goes its way by more than {TIMES:g} "
        f"standard errors of the difference, not seen where it goes the other way by more than that, and within noise "
        f"otherwise. That two are the same is seen where the difference and {TIMES:g} errors together stay inside the "
        "margin stated, and not seen where the difference less that is outside it."
    )


def reason(done: Sequence[Mapping[str, Any]], seeds: int) -> str | None:
    """Why a row is not whole."""
    failed = [each for each in done if each["failed"]]
    if failed:
        return f"seed {failed[0]['seed']}: {failed[0]['failed']}"
    return f"{seeds - len(done)} of {seeds} seeds still to be run" if len(done) < seeds else None


def taken(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Which cells another table had trained alike."""
    told = [f"{name} ({each['taken']})" for name, done in found.items() for each in done if each.get("taken")]
    return f"Taken from another table, where they were trained alike: {'; '.join(dict.fromkeys(told))}." if told else ""


def made_on(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """What the cells ran on; several where they did not all run on one."""
    places = [each["where"] for done in found.values() for each in done if "where" in each]
    told = [f"{each['device']}, torch {each['torch']}, litebert {each['litebert']}" for each in places]
    return f"Made on {' and '.join(dict.fromkeys(told))}." if told else ""


def _remarks(rows: Sequence[Row], judged: Sequence[Judged]) -> list[str]:
    found = []
    if any(figure.probed for row in rows for figure in row.figures.values()):
        found.append(
            "† By a linear head on frozen states, taught on the train part of the shards: pre-training did not ask it."
        )
    noise = [each for each in judged if each.verdict == "within noise"]
    if noise:
        found.append(
            f"{len(noise)} of {len(judged)} comparisons are within noise: this budget with these seeds cannot tell. "
            "A longer budget, or more --seeds, could."
        )
    return found
