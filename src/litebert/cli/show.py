"""How commands print: tables for people, JSON for programs, progress on the error stream."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print plain JSON.")]
Bound = Annotated[
    float | None,
    typer.Option("--settle", metavar="BOUND", help="Stop an example when a pass changes its answer by at most this."),
]
FromPasses = Annotated[
    int | None, typer.Option(metavar="N", help="With --settle: the first pass after which one may stop; default: 2.")
]

Precise = Annotated[
    str | None,
    typer.Option("--precision", metavar="TYPE", help="On a CPU: fp32, bf16 or int8, by its quickest kernels."),
]


def progress(what: str) -> None:
    if sys.stderr.isatty():
        typer.echo(f"… {what}", err=True)


@contextmanager
def stoppable() -> Iterator[None]:
    """Around work that keeps what is finished: asked to stop, it says how it goes on."""
    from litebert.train.stopping import Stopped

    try:
        yield
    except Stopped as stopped:
        typer.echo("stopped; what is done is kept: the same command goes on from there", err=True)
        raise typer.Exit(128 + stopped.signum) from None


def size(count: int) -> str:
    amount, unit = (count / 2**30, "GiB") if count >= 2**30 else (count / 2**20, "MiB")
    return f"{amount:.2f} {unit}" if amount < 100 else f"{amount:.0f} {unit}"


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 or column == "why" else "right")
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else 140
    Console(width=width, markup=False, emoji=False).print(table)  # names are not markup
