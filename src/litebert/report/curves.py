"""Runs -> pictures of how they learned: losses and accuracies over pieces, steps or seconds, one line a run."""

import json
from pathlib import Path
from typing import Any

from litebert.report.figure import check_picture, line_style, new_figure, plain, save_picture
from litebert.strict import UserError

PANELS = (  # title, kind of line, section of it, keys of which the first found is drawn
    ("training: masked loss", "train", None, ("masked_loss",)),
    ("held out: masked accuracy", "held-out", "protocol", ("masked_accuracy",)),
    ("held out: order or next accuracy", "held-out", "protocol", ("order_accuracy", "next_accuracy")),
    ("training: pieces a second", "train", "time", ("pieces_per_second",)),
)
AXES = {"steps": "steps", "pieces": "pieces seen", "minutes": "minutes of training"}


def read_run(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics, each with the pieces and minutes it was written after."""
    path = folder / "metrics.jsonl"
    if not path.is_file():
        raise UserError(f"{folder} holds no metrics.jsonl, so it is not the directory of a run")
    lines: list[dict[str, Any]] = []
    texts = path.read_text(encoding="utf-8").splitlines()
    for number, text in enumerate(texts, 1):
        try:
            lines.append(json.loads(text))
        except ValueError:
            if number < len(texts):  # the last one may be that of a killed process
                raise UserError(f"{path}, line {number}, is not JSON") from None
    seen: dict[str, float] = {"pieces": 0.0, "minutes": 0.0}
    for line in lines:  # evaluations stand after the training line of their step, or near it
        if line["kind"] == "train":
            seen = {"pieces": line["pieces"], "minutes": line["time"]["seconds"] / 60}
        line["at"] = seen | {"steps": line["step"]}
    return lines


def series(lines: list[dict[str, Any]], kind: str, section: str | None, keys: tuple[str, ...], axis: str) -> Any:
    """(x, y) of what a panel draws; the last evaluation belongs to those on the way."""
    points = []
    for line in lines:
        if line["kind"] == kind or (kind == "held-out" and line["kind"] == "final"):
            values = line[section] if section else line
            key = next((key for key in keys if key in values), None)
            if key is not None:
                points.append((line["at"][axis], values[key]))
    return points


def plot_curves(folders: list[Path], to: Path, axis: str = "minutes") -> dict[str, Any]:
    """Draw the runs into one picture; returns where each of them ended."""
    if axis not in AXES:
        raise UserError(f"--over {axis!r}; allowed: {', '.join(AXES)}")
    check_picture(to)
    runs = {str(folder): read_run(folder) for folder in folders}
    figure = new_figure(12, 8)
    axes = figure.subplots(2, 2)
    for place, (title, kind, section, keys) in zip(axes.flat, PANELS, strict=True):
        for number, (name, lines) in enumerate(runs.items()):
            points = series(lines, kind, section, keys, axis)
            if points:
                style = line_style(number) | {"markevery": max(1, len(points) // 12)}
                place.plot(*zip(*points, strict=True), label=Path(name).name, **style)
        place.set_title(title)
        plain(place, AXES[axis], "")
    axes.flat[0].legend()
    save_picture(figure, to)
    looks = {name: [line["protocol"] for line in lines if "protocol" in line] for name, lines in runs.items()}
    return {"picture": str(to), "runs": {name: each[-1] if each else {} for name, each in looks.items()}}
