"""Runs -> pictures of how they learned: losses, scores and speed over pieces, steps or minutes, one line a run."""

import json
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from litebert.report.figure import check_picture, line_style, new_figure, plain, save_picture
from litebert.strict import UserError

Panel = tuple[str, str, str | None, tuple[str, ...]]  # title, kind of line, section of it, keys: the first found counts
PRETRAINING: tuple[Panel, ...] = (
    ("training: masked loss", "train", None, ("masked_loss",)),
    ("held out: masked accuracy", "held-out", "protocol", ("masked_accuracy",)),
    ("held out: order or next accuracy", "held-out", "protocol", ("order_accuracy", "next_accuracy")),
    ("training: pieces a second", "train", "time", ("pieces_per_second",)),
)
LOSS: Panel = ("fine-tuning: loss", "tune", None, ("loss",))
SPEED: Panel = ("fine-tuning: examples a second", "tune", "time", ("examples_per_second",))
AXES = {"steps": "steps", "pieces": "pieces seen", "minutes": "minutes of training"}
Lines = list[dict[str, Any]]


def read_run(folder: Path) -> Lines:
    """The lines of a run's metrics, each with the pieces and minutes it was written after."""
    path = folder / "metrics.jsonl"
    if not path.is_file():
        inside = sorted(each.parent.name for each in folder.glob("*/metrics.jsonl"))
        seeds = f"; give those inside it: {', '.join(inside)}" if inside else ""
        raise UserError(f"{folder} holds no metrics.jsonl, so it is not the directory of a run{seeds}")
    lines: Lines = []
    texts = path.read_text(encoding="utf-8").splitlines()
    for number, text in enumerate(texts, 1):
        try:
            lines.append(json.loads(text))
        except ValueError:
            if number < len(texts):  # the last one may be that of a killed process
                raise UserError(f"{path}, line {number}, is not JSON") from None
    (_place_tuned if is_tuned(lines) else _place)(lines)
    return lines


def is_tuned(lines: Lines) -> bool:
    return any(line["kind"] in ("tune", "dev") for line in lines)


def _place(lines: Lines) -> None:
    """Evaluations stand after the training line of their step, or near it."""
    seen: dict[str, float] = {"pieces": 0.0, "minutes": 0.0}
    for line in lines:
        if line["kind"] == "train":
            seen = {"pieces": line["pieces"], "minutes": line["time"]["seconds"] / 60}
        line["at"] = seen | {"steps": line["step"]}


def _place_tuned(lines: Lines) -> None:
    """A line says how long its own steps took; a look at the dev set may stand between two of them."""
    logged = [line for line in lines if line["kind"] == "tune"]
    steps = [0, *(line["step"] for line in logged)]
    minutes = np.cumsum([0.0, *(line["time"]["seconds"] / 60 for line in logged)])
    for line in lines:
        line["at"] = {"steps": line["step"], "minutes": float(np.interp(line["step"], steps, minutes))}
        if line["kind"] == "dev":
            line["first"] = {line["scores"][0]["name"]: line["scores"][0]["value"]}


def series(lines: Lines, kind: str, section: str | None, keys: tuple[str, ...], axis: str) -> list[tuple[float, float]]:
    """(x, y) of what a panel draws; the last evaluation of pre-training belongs to those on the way."""
    points = []
    for line in lines:
        if line["kind"] == kind or (kind == "held-out" and line["kind"] == "final"):
            values = line.get(section, {}) if section else line
            found = next((values[key] for key in keys if values.get(key) is not None), None)
            if found is not None:
                points.append((line["at"][axis], found))
    return points


def panels_of(runs: dict[str, Lines]) -> list[Panel]:
    """What any of the runs can show; of the dev set's scores the first, which decides what model is kept."""
    tuned = [lines for lines in runs.values() if is_tuned(lines)]
    names = dict.fromkeys(name for lines in tuned for line in lines for name in line.get("first", ()))
    scores: list[Panel] = [(f"dev set: {name}", "dev", "first", (name,)) for name in names]
    wanted = [*PRETRAINING, LOSS, *scores, SPEED]
    return [panel for panel in wanted if any(series(lines, *panel[1:], "steps") for lines in runs.values())]


def plot_curves(folders: list[Path], to: Path, axis: str = "minutes") -> dict[str, Any]:
    """Draw the runs into one picture, each in the panels it has; returns where each of them ended."""
    if axis not in AXES:
        raise UserError(f"--over {axis!r}; allowed: {', '.join(AXES)}")
    check_picture(to)
    runs = {str(folder): read_run(folder) for folder in folders}
    uncounted = next((name for name, lines in runs.items() if is_tuned(lines)), None) if axis == "pieces" else None
    if uncounted is not None:
        raise UserError(f"{uncounted} is a fine-tuning run, which counts no pieces; draw it --over steps or minutes")
    panels = panels_of(runs)
    if not panels:
        raise UserError(f"{', '.join(runs)}: nothing is logged yet that could be drawn; wait for the first line")
    _draw(runs, panels, to, axis)
    return {"picture": str(to), "runs": {name: ended(lines) for name, lines in runs.items()}}


def _draw(runs: dict[str, Lines], panels: list[Panel], to: Path, axis: str) -> None:
    columns = len(panels) if len(panels) < 4 else ceil(len(panels) / 2)
    rows = ceil(len(panels) / columns)
    figure = new_figure(6 * columns, 4 * rows)
    places = figure.subplots(rows, columns, squeeze=False).flat
    named: set[str] = set()
    for panel, place in zip(panels, places, strict=False):
        for number, (name, lines) in enumerate(runs.items()):
            points = series(lines, *panel[1:], axis)
            if points:
                style = line_style(number) | {"markevery": max(1, len(points) // 12)}
                place.plot(*zip(*points, strict=True), label=Path(name).name, **style)
        place.set_title(panel[0])
        plain(place, AXES[axis], "")
        here = set(place.get_legend_handles_labels()[1])
        if not here <= named:
            place.legend()
            named |= here
    for place in places:
        place.axis("off")
    save_picture(figure, to)


def ended(lines: Lines) -> dict[str, Any]:
    """What a run's last evaluation said; of a fine-tuned one that of the model that is kept."""
    last: dict[str, Any] = next((line for line in reversed(lines) if {"protocol", "scores"} & set(line)), {})
    return last.get("protocol") or {each["name"]: each["value"] for each in last.get("scores", ())}
