"""A model and a text -> who looks at whom: a panel a head, or the mean of all heads, of chosen layers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.config import UserError
from litebert.infer.look import inside
from litebert.infer.model import Model
from litebert.report.figure import check_picture, new_figure, save_picture
from litebert.report.rows import Given, rows_of

LONGEST = 64  # pieces: more cannot be read
PANELS = 48
WIDEST, HIGHEST = 32.0, 48.0  # of a picture, in inches
MEAN = "mean"


@dataclass(frozen=True)
class Panel:
    """One map: rows look, columns are looked at."""

    layer: int
    head: int | None  # None: the mean of all
    attention: list[list[float]]  # (S, S)

    @property
    def title(self) -> str:
        return f"layer {self.layer}, {'mean of heads' if self.head is None else f'head {self.head}'}"


@dataclass(frozen=True)
class Attention:
    """What is drawn, in the order it is drawn."""

    name: str
    pieces: list[str]
    lost: int
    source: str
    panels: list[Panel]
    heads: int  # that a layer shows: panels in a row of the picture, if they fit


def plot_attention(
    name: str, model: Model, what: Given, to: Path, layers: str = "last", heads: str = "all"
) -> Attention:
    """`layers`, `heads`: numbers such as 1,6,12, "last" or "all", and for heads "mean"."""
    check_picture(to)
    rows = rows_of(name, model, what, LONGEST)
    if len(rows) > 1 and what.source(model) != "random ids":
        raise UserError(f"{len(rows)} texts; attention is drawn of one: give one")
    found = inside(model, rows[0])
    chosen = pick(layers, found.depth, "layers")
    shown: Sequence[int | None] = [None] if heads == MEAN else pick(heads, model.config.heads, "heads")
    if len(chosen) * len(shown) > PANELS:
        raise UserError(
            f"{len(chosen)} layers × {len(shown)} heads are {len(chosen) * len(shown)} panels, and a picture holds "
            f"{PANELS}; choose by --layers and --heads, or take --heads {MEAN}"
        )
    panels = []
    for layer in chosen:
        maps = found.maps(layer)
        for head in shown:
            seen = maps.mean(0) if head is None else maps[head - 1]
            panels.append(Panel(layer, head, [[round(value, 6) for value in row] for row in seen.tolist()]))
    names = [_label(model, index) for index in rows[0].input_ids]
    drawn = Attention(name, names, rows[0].lost, what.source(model), panels, len(shown))
    save_picture(draw_attention(drawn), to)
    return drawn


def pick(said: str, most: int, what: str) -> list[int]:
    """Numbers from 1; from the end where negative.

    >>> pick("last", 12, "layers"), pick("1,-1", 12, "layers"), pick("all", 3, "heads")
    ([12], [1, 12], [1, 2, 3])
    """
    if said in ("last", "all"):
        return [most] if said == "last" else list(range(1, most + 1))
    try:
        numbers = [int(part) for part in said.split(",")]
    except ValueError:
        numbers = [0]
    if not all(1 <= abs(number) <= most for number in numbers):
        more = f", {MEAN}" if what == "heads" else ""
        raise UserError(f"--{what} {said}; this model has {most}: give numbers from 1 to {most}, last, all{more}")
    return list(dict.fromkeys(number if number > 0 else most + 1 + number for number in numbers))


def _label(model: Model, index: int) -> str:
    if model.tokenizer is None:
        return str(index)
    piece = model.tokenizer.piece(index)
    return piece if len(piece) <= 14 else f"{piece[:13]}…"


def draw_attention(found: Attention) -> Any:
    """One scale for all panels; the names of the pieces stand at the left and under the lowest of each column."""
    count, size = len(found.panels), len(found.pieces)
    side = max(1.7, 0.16 * size)  # inches: a line of small letters a piece
    fit = max(1, int(WIDEST // (side + 0.3)))
    columns = found.heads if 1 < found.heads < count else math.ceil(math.sqrt(count))
    columns = min(columns, fit) if columns <= 6 else min(fit, math.ceil(columns / math.ceil(columns / 6)))
    rows = math.ceil(count / columns)
    words = 0.075 * max(map(len, found.pieces))  # inches that the longest name takes
    if rows * (side + 0.35) > HIGHEST:
        raise UserError(
            f"{count} panels of {size} pieces do not fit a picture that can be read; give a shorter text, or choose "
            "fewer by --layers and --heads"
        )
    figure = new_figure(columns * (side + 0.25) + words + 1.1, rows * (side + 0.35) + words + 0.6)
    axes = figure.subplots(rows, columns, squeeze=False)
    top = max(value for panel in found.panels for row in panel.attention for value in row)
    letters = min(9.0, 0.85 * 72 * side / size)
    for place, panel in zip(axes.flat, found.panels, strict=False):
        image = place.imshow(panel.attention, cmap="Greys", vmin=0, vmax=top, interpolation="nearest")
        place.set_title(panel.title, fontsize=9)
    for number, place in enumerate(axes.flat):
        if number >= count:
            place.set_visible(False)
            continue
        left, lowest = number % columns == 0, number + columns >= count
        names = {"fontsize": letters, "parse_math": False}
        place.set_xticks(range(size), found.pieces if lowest else [""] * size, rotation=90, **names)
        place.set_yticks(range(size), found.pieces if left else [""] * size, **names)
        place.tick_params(length=1.5, pad=1.5)
    source = "" if found.source == "text" else f", {found.source}"
    figure.suptitle(f"{found.name}{source}: a piece (row) looks at pieces (columns)", fontsize=10, parse_math=False)
    figure.colorbar(image, ax=axes, label="share of its attention", shrink=min(1.0, 4 / (rows * side)), aspect=25)
    return figure


def as_table(found: Attention) -> dict[str, Any]:
    return {
        "model": found.name,
        "source": found.source,
        "pieces": found.pieces,
        "lost": found.lost,
        "panels": [{"layer": each.layer, "head": each.head, "attention": each.attention} for each in found.panels],
    }
