"""A table -> Markdown for people, CSV for spreadsheets, JSON for programs, and a picture."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from litebert.ablate.table import Column, Figure, Judged, Row, Table, Unit
from litebert.files import replace_file
from litebert.report.figure import INK, new_figure
from litebert.report.figure import picture as drawn_as

WIDE = 4  # panels in a line


def write_table(table: Table, to: Path) -> list[Path]:
    """Files of one content, each of which appears in one moment. The picture is the last: it may lack its package."""
    to.mkdir(parents=True, exist_ok=True)
    makers: dict[str, Callable[[Table], bytes]] = {
        "table.md": lambda made: markdown(made).encode(),
        "table.csv": lambda made: as_csv(made).encode(),
        "table.json": lambda made: (json.dumps(made.plain(), indent=1) + "\n").encode(),
        "table.png": picture,
    }
    for name, make in makers.items():
        replace_file(to / name, make(table))
    return [to / name for name in makers]


def said(figure: Figure | None, unit: Unit) -> str:
    """
    >>> said(Figure(51.234, 0.31, ()), "percent"), said(Figure(11_683_584, 0, ()), "count"), said(None, "count")
    ('51.23 ± 0.31', '11.7M', '')
    """
    if figure is None:
        return ""
    if unit == "count":
        return f"{figure.value / 1e6:.1f}M" if figure.value >= 1e5 else f"{figure.value:,.0f}"
    if unit == "whole":
        return f"{figure.value:,.0f}"
    sign = "+" if unit == "points" else ""
    error = f" ± {figure.error:.2f}" if figure.error else ""
    return f"{figure.value:{sign}.2f}{error}{' †' if figure.probed else ''}"


def cells_of(table: Table, whole: bool = True) -> tuple[list[str], list[list[str]]]:
    """Heads and rows as text: each of our columns, the paper's beside it where it printed one; `whole`: what the paper
    printed beyond our columns stands at the end."""
    printed = {key for row in table.rows for key in row.printed}
    own = {column.printed for column in table.columns}
    rest = [key for row in table.rows for key in row.printed if key not in own]
    rest = list(dict.fromkeys(rest)) if whole else []
    heads = ["cell"]
    for column in table.columns:
        heads += [titled(column), *(["paper"] if column.printed in printed else [])]
    heads += [f"paper's {key}" for key in rest]
    rows = []
    for row in table.rows:
        line = [f"{row.cell} (failed)" if row.failed and not row.figures else row.cell]
        for column in table.columns:
            line.append(said(row.figures.get(column.key), column.unit))
            if column.printed in printed:
                line.append(_plain(row.printed.get(column.printed)))
        rows.append([*line, *(_plain(row.printed.get(key)) for key in rest)])
    return heads, rows


def titled(column: Column) -> str:
    return f"{column.title} (%)" if column.unit == "percent" else column.title


def _plain(value: Any) -> str:
    return "" if value is None else str(value)


def markdown(table: Table) -> str:
    heads, rows = cells_of(table)
    lines = [f"# {table.title}", "", f"Beside {table.source}. Scale: {table.scale}; seeds: {table.seeds}.", ""]
    lines += [_line(heads), _line(["---", *("---:" for _ in heads[1:])]), *map(_line, rows), ""]
    lines += [f"Not whole: {row.cell}, {row.failed}.\n" for row in table.rows if row.failed]
    if table.findings:
        found = [[each.claim, _title(table, each.column), *verdict(each)] for each in table.findings]
        lines += ["## What the paper found", ""]
        lines += [_line(["finding", "column", "verdict", "difference"]), _line(["---"] * 4), *map(_line, found), ""]
    lines += [table.rule, "", *(f"{note}\n" for note in table.notes)]
    return "\n".join(lines).rstrip() + "\n"


def verdict(each: Judged) -> list[str]:
    told = "" if each.difference is None else f"{each.difference:+.2f} ± {each.error:.2f}"
    return [each.verdict, told]


def _title(table: Table, key: str) -> str:
    return next(column.title for column in table.columns if column.key == key)


def _line(words: Sequence[str]) -> str:
    return f"| {' | '.join(word.replace('|', '/') for word in words)} |"


def as_csv(table: Table) -> str:
    """One row a cell; of each column its value, its error and the paper's."""
    held = io.StringIO()
    writer = csv.writer(held, lineterminator="\n")
    heads = ["cell", "failed"]
    for column in table.columns:
        heads += [column.key, f"{column.key} error", f"{column.key} paper"]
    writer.writerow(heads)
    for row in table.rows:
        line: list[Any] = [row.cell, row.failed or ""]
        for column in table.columns:
            figure = row.figures.get(column.key)
            pair = [figure.value, figure.error] if figure else ["", ""]
            line += [*pair, _plain(row.printed.get(column.printed))]
        writer.writerow(line)
    return held.getvalue()


def number(printed: Any) -> float | None:
    """The first figure of what a paper printed: F1 of `F1/EM`, a whole number of `12M` and `125k`.

    >>> number("89.3/82.3"), number("12M"), number("125k"), number(4.7), number(None)
    (89.3, 12000000.0, 125000.0, 4.7, None)
    """
    text = str(printed).split("/")[0].strip()
    times = {"M": 1e6, "k": 1e3, "K": 1e3}.get(text[-1:], 1.0)
    try:
        return times * float(text.rstrip("MkK"))
    except ValueError:
        return None


def picture(table: Table) -> bytes:
    """A panel a column: ours with twice its error, the paper's beside it on an axis of its own."""
    drawn = [column for column in table.columns if tells(table, column)]
    across = min(WIDE, max(1, len(drawn)))
    down = max(1, -(-len(drawn) // WIDE))
    figure = new_figure(4.2 * across, (1.6 + 0.32 * len(table.rows)) * down)
    panels = figure.subplots(down, across, sharey=True, squeeze=False)
    for place in panels.flat[len(drawn) :]:
        place.set_visible(False)
    for column, place in zip(drawn, panels.flat, strict=False):
        _panel(place, table.rows, column)
    figure.suptitle(f"{table.title} ({table.scale})")
    return drawn_as(figure)


def tells(table: Table, column: Column) -> bool:
    """Whether it is worth a panel: what is exactly the same in all cells stands in the table."""
    found = [row.figures[column.key] for row in table.rows if column.key in row.figures]
    theirs = {number(row.printed.get(column.printed)) for row in table.rows}
    return bool(found) and (len(found) == 1 or len({(each.value, each.error) for each in found}) + len(theirs) > 2)


def _panel(place: Any, rows: Sequence[Row], column: Column) -> None:
    ours = [(at, row.figures[column.key]) for at, row in enumerate(rows) if column.key in row.figures]
    heights, found = zip(*ours, strict=True)
    scale = 1e6 if column.unit == "count" else 1.0
    values, errors = [each.value / scale for each in found], [2 * each.error / scale for each in found]
    place.errorbar(values, heights, xerr=errors, fmt="o", color=INK, capsize=3)
    printed = [(number(row.printed.get(column.printed)), at) for at, row in enumerate(rows)]
    theirs = [(value / scale, at) for value, at in printed if value is not None]
    place.set_xlabel(f"{column.title}, millions" if scale > 1 else titled(column), color=INK)
    if theirs:
        other = place.twiny()
        other.plot(*zip(*theirs, strict=True), "D", color="grey", markerfacecolor="none")
        other.set_xlabel("paper", color="grey")
    place.set_yticks(range(len(rows)), [row.cell for row in rows])
    place.set_ylim(len(rows) - 0.5, -0.5)
    place.grid(alpha=0.3)
