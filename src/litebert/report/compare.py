"""Models that were measured side by side -> one table and one picture: parameters, bytes, times, memory and score."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from litebert.infer.model import load
from litebert.infer.predict import Asked, ask
from litebert.report.evaluation import evaluate, read_examples
from litebert.report.figure import new_figure, plain, point_style
from litebert.tasks.example import Example, Task
from litebert.tasks.metrics import Score

BATCH = 32  # of the throughput


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One model. Latency is of one text, throughput of BATCH at once, all texts of the same number of pieces."""

    name: str
    model: str  # its folder
    family: str
    sharing: str
    parameters: int
    bytes: int  # of its weights on disk
    stored: str  # the type of the weights there
    cpu_ms: float
    cpu_per_second: float
    gpu_ms: float | None = None
    gpu_per_second: float | None = None
    memory_bytes: int | None = None  # that loading it and its work add to a process, at most
    scores: tuple[Score, ...] = ()


@dataclass(frozen=True)
class Exam:
    """A model ready to be scored, and on what."""

    asked: Asked
    task: Task
    examples: list[Example]


def prepare(models: Mapping[str, str], data: Path, task: str, split: str, device: torch.device) -> dict[str, Exam]:
    """What cannot be scored is said here, before anything is measured."""
    found = {}
    for name, word in models.items():
        (asked,) = ask([name], [load(word)], device)
        found[name] = Exam(asked, *read_examples(asked.task, data, task, split))
    return found


def score(exams: Mapping[str, Exam], say: Callable[[str], object]) -> dict[str, tuple[Score, ...]]:
    found = {}
    for name, exam in exams.items():
        say(f"scoring {name} on {len(exam.examples):,} examples")
        found[name] = evaluate([exam.asked], exam.examples, exam.task).scores
    return found


def columns(models: Sequence[Measured], length: int) -> list[tuple[str, Callable[[Measured], str]]]:
    """A title and what stands under it; what nobody has has no column."""
    shape = f"{length} pieces"
    found: list[tuple[str, Callable[[Measured], str]]] = [
        ("model", lambda each: each.name),
        ("family", lambda each: each.family),
        ("parameters", lambda each: f"{each.parameters:,}"),
        ("on disk", lambda each: f"{each.bytes / 2**20:.1f} MiB {each.stored}"),
        (f"CPU, 1 × {shape}", lambda each: f"{each.cpu_ms:.2f} ms"),
        (f"CPU, {BATCH} × {shape}", lambda each: f"{each.cpu_per_second:.1f} texts/s"),
        (f"GPU, 1 × {shape}", lambda each: _or_dash(each.gpu_ms, "{:.2f} ms")),
        (f"GPU, {BATCH} × {shape}", lambda each: _or_dash(each.gpu_per_second, "{:,.0f} texts/s")),
        ("peak memory", lambda each: "–" if each.memory_bytes is None else f"{each.memory_bytes / 2**20:.0f} MiB"),
    ]
    for number, one in enumerate(models[0].scores):
        found.append((f"{one.name} × 100", lambda each, n=number: _score(each.scores[n])))  # type: ignore[misc]
    return [(title, cell) for title, cell in found if any(cell(each) != "–" for each in models)]


def _or_dash(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def _score(one: Score) -> str:
    return f"{100 * one.value:.2f} ± {100 * one.error:.2f}"


def markdown(models: Sequence[Measured], length: int) -> str:
    shown = columns(models, length)
    cells = [[title for title, _ in shown], *([cell(each) for _, cell in shown] for each in models)]
    widths = [max(len(row[number]) for row in cells) for number in range(len(shown))]
    cells.insert(1, ["-" * width if number < 2 else "-" * (width - 1) + ":" for number, width in enumerate(widths)])
    lines = []
    for row in cells:
        sides = [
            cell.ljust(width) if n < 2 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(f"| {' | '.join(sides)} |\n")
    return "".join(lines)


def draw_compare(models: Sequence[Measured], length: int) -> Any:
    """Each measure across, the score up; without scores the time of one text on a CPU."""
    scored = bool(models[0].scores)
    measures: list[tuple[str, Callable[[Measured], float | None]]] = [
        ("parameters (millions)", lambda each: each.parameters / 1e6),
        ("weights on disk (MiB)", lambda each: each.bytes / 2**20),
        ("CPU: milliseconds a text", lambda each: each.cpu_ms),
        (f"CPU: texts a second, {BATCH} at once", lambda each: each.cpu_per_second),
        ("GPU: milliseconds a text", lambda each: each.gpu_ms),
        (f"GPU: texts a second, {BATCH} at once", lambda each: each.gpu_per_second),
        ("peak memory (MiB)", lambda each: None if each.memory_bytes is None else each.memory_bytes / 2**20),
    ]
    shown = [each for each in measures if all(each[1](model) is not None for model in models)]
    if not scored:
        shown = [each for each in shown if each[0] != measures[2][0]]
    across = 2 if len(shown) in (2, 4) else 3
    rows = -(-len(shown) // across)
    figure = new_figure(4.2 * across, 3.4 * rows + 0.8)
    places = list(figure.subplots(rows, across, squeeze=False).flat)
    name = f"{models[0].scores[0].name} × 100" if scored else measures[2][0]
    for place, (title, value) in zip(places, shown, strict=False):
        for number, each in enumerate(models):
            up = 100 * each.scores[0].value if scored else each.cpu_ms
            if scored:
                place.errorbar(value(each), up, 100 * each.scores[0].error, color="black", linewidth=1, capsize=3)
            place.scatter([value(each)], [up], s=70, zorder=3, label=each.name, **point_style(number))
        place.margins(0.12)
        place.set_xlim(0, 1.12 * max(value(each) or 0.0 for each in models))
        plain(place, title, name if place.get_subplotspec().is_first_col() else "")
        if not scored:
            place.set_ylim(0, 1.12 * max(each.cpu_ms for each in models))
    for place in places[len(shown) :]:
        place.set_visible(False)
    handles = places[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=min(4, len(models)), title=f"texts of {length} pieces")
    return figure
