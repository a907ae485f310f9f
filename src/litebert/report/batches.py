"""Configs and a card's memory -> the largest training batch by length, as curves, with the points that BERT's authors
published for a 12 GB card beside them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litebert.config import ModelConfig
from litebert.model.memory import CONTEXT, LENGTHS, fit_table
from litebert.report.figure import COLOURS, MARKERS, check_picture, line_style, new_figure, plain, save_picture
from litebert.report.info import papers

MEMBERS = ("albert-base", "albert-large", "albert-xlarge", "bert-base", "bert-large", "distilbert-base")
PUBLISHED = (12_000_000_000, 12 << 30)  # what "12 GB" may mean
NONE_FITS = 0.5  # where a zero stands on a logarithmic axis


def published() -> dict[str, dict[int, int]]:
    """Of each model, the batch by length."""
    table = papers()["bert"]["largest_batch_12GB"]
    return {row[0]: dict(zip(table["columns"][1:], row[1:], strict=True)) for row in table["rows"]}


def plot_memory(configs: Mapping[str, ModelConfig], budget: int, to: Path) -> dict[str, Any]:
    check_picture(to)
    curves = {name: fit_table(config, budget) for name, config in configs.items()}
    beside = {}
    if PUBLISHED[0] <= budget <= PUBLISHED[1]:
        beside = {name: points for name, points in published().items() if name in configs}
    save_picture(draw_memory(curves, beside, budget), to)
    return {
        "picture": str(to),
        "budget_bytes": budget,
        "context_bytes": CONTEXT,
        "curves": curves,
        "published_12GB": {
            name: [{"length": length, "batch": batch} for length, batch in points.items()]
            for name, points in beside.items()
        },
    }


def draw_memory(curves: Mapping[str, list[dict[str, int]]], beside: Mapping[str, dict[int, int]], budget: int) -> Any:
    """Both axes logarithmic: twice the length is about half the batch."""
    figure = new_figure(9, 6)
    axes = figure.subplots()
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    order = sorted(curves, key=lambda name: -curves[name][0]["batch"])  # the legend reads as the curves lie
    for number, name in enumerate(order):
        lengths = [row["length"] for row in curves[name]]
        axes.plot(lengths, [row["batch"] or NONE_FITS for row in curves[name]], label=name, **line_style(number))
        if name in beside:
            style = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
            heights = [batch or NONE_FITS for batch in beside[name].values()]
            label = f"{name}, published for 12 GB"
            axes.plot(list(beside[name]), heights, label=label, mfc="white", markersize=9, linestyle="none", **style)
    shown = sorted({row["length"] for rows in curves.values() for row in rows} | set(LENGTHS if beside else ()))
    axes.set_xticks(shown, [str(length) for length in shown])
    axes.minorticks_off()
    most = max(row["batch"] for rows in curves.values() for row in rows)
    powers = [2**power for power in range(max(1, most).bit_length() + 1)]
    zero = any(not row["batch"] for rows in curves.values() for row in rows)
    zero = zero or any(not batch for points in beside.values() for batch in points.values())
    axes.set_yticks([NONE_FITS, *powers] if zero else powers, [*(["none fits"] if zero else []), *map(str, powers)])
    plain(axes, "length (pieces)", "largest training batch")
    axes.set_title(f"Largest batch of a pre-training step in {budget / 2**30:.4g} GiB, as estimated", fontsize=11)
    figure.legend(loc="outside right upper")
    return figure
