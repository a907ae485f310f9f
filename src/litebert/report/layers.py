"""Models and texts -> how far each layer moves a state: L2 distance and cosine between its input and its output.

Figure 1 of the ALBERT paper: sharing smooths the path. Every real piece counts once, specials included; layer 1 takes
what the embeddings give, which for ALBERT is after their projection to the hidden size.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from litebert.infer.look import inside, moves
from litebert.infer.model import Model
from litebert.report.figure import check_picture, line_style, new_figure, plain, save_picture
from litebert.report.rows import Given, check_same_pieces, rows_of


@dataclass(frozen=True, kw_only=True)
class LayerPath:
    """The means over all pieces that a model read."""

    name: str
    family: str
    sharing: str
    hidden_size: int
    source: str  # of what it read
    rows: int
    pieces: int
    cut: int  # rows that were longer than what it takes
    distance: list[float]  # a number a layer
    cosine: list[float]
    degrees: list[float]
    length: list[float]  # of the states: what goes into the first layer, then a number a layer

    @property
    def depth(self) -> int:
        return len(self.distance)


def layer_path(name: str, model: Model, what: Given) -> LayerPath:
    rows = rows_of(name, model, what)
    first, *others = (moves(inside(model, row).states) for row in rows)
    found = sum(others, first)
    config = model.config
    return LayerPath(
        name=name,
        family=config.family,
        sharing=config.sharing,
        hidden_size=config.hidden_size,
        source=what.source(model),
        rows=len(rows),
        pieces=found.pieces,
        cut=sum(row.lost > 0 for row in rows),
        distance=(found.distance / found.pieces).tolist(),
        cosine=(found.cosine / found.pieces).tolist(),
        degrees=(found.degrees / found.pieces).tolist(),
        length=(found.length / found.pieces).tolist(),
    )


def plot_layers(
    models: Mapping[str, Callable[[], Model]], what: Given, to: Path, say: Callable[[str], object] = lambda _: None
) -> list[LayerPath]:
    """Each model by its name and how to load it."""
    check_picture(to)
    loaded = {}
    for name, load in models.items():
        say(f"loading {name}")
        loaded[name] = load()
    check_same_pieces(loaded, what)
    paths = []
    for name, model in loaded.items():
        say(f"reading with {name}")
        paths.append(layer_path(name, model, what))
    save_picture(draw_layers(paths), to)
    return paths


def draw_layers(paths: list[LayerPath]) -> Any:
    """Distance and cosine as in the paper, and how long the states are that a distance is to be held against."""
    figure = new_figure(13, 4.6)
    left, middle, right = figure.subplots(1, 3)
    for number, path in enumerate(paths):
        shared = "" if path.sharing == "none" else f", shares {path.sharing}"
        random = ", random ids" if path.source == "random ids" else ""
        style = line_style(number) | {"label": f"{path.name} ({path.family}, {path.depth} layers{shared}{random})"}
        layers = range(1, path.depth + 1)
        left.plot(layers, path.distance, **style)
        middle.plot(layers, path.cosine, **style)
        right.plot(range(path.depth + 1), path.length, **style)
    plain(left, "layer", "L2 distance of its input and output")
    plain(middle, "layer", "cosine of its input and output")
    plain(right, "layer (0: the embeddings)", "L2 length of a state")
    for axes in (left, right):
        axes.set_ylim(bottom=0)
    for axes in (left, middle, right):
        axes.xaxis.get_major_locator().set_params(integer=True)
    low = min(0.95, *(value for path in paths for value in path.cosine))
    middle.set_ylim(max(-1.0, low - 0.05), 1.0)
    angle = middle.secondary_yaxis("right", functions=(_to_degrees, _to_cosine))
    angle.set_ylabel("degrees")
    angle.set_yticks([each for each in (0, 20, 30, 40, 50, 60, 75, 90, 120, 180) if _to_cosine(each) >= low - 0.05])
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=min(3, len(paths)))
    return figure


def _to_degrees(cosine: Any) -> Any:
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


def _to_cosine(degrees: Any) -> Any:
    return np.cos(np.radians(degrees))


def as_table(paths: list[LayerPath]) -> list[dict[str, Any]]:
    return [asdict(path) | {"depth": path.depth} for path in paths]
