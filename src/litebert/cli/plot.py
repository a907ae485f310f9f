"""`litebert plot …`: pictures."""

from pathlib import Path
from typing import Annotated

import typer

from litebert.cli.show import Json, print_json

app = typer.Typer(help="Draw runs and models.", no_args_is_help=True)


@app.callback()
def plot() -> None:
    """Draw runs and models."""


@app.command()
def curves(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Directories of runs.")],
    to: Annotated[Path, typer.Option("--to", help="The picture: .png, .svg or .pdf.")] = Path("curves.png"),
    over: Annotated[str, typer.Option(help="minutes, pieces or steps.")] = "minutes",
    as_json: Json = False,
) -> None:
    """Loss, held-out accuracies and speed of one or several runs."""
    from litebert.report.curves import plot_curves

    found = plot_curves(runs, to, over)
    if as_json:
        print_json(found)
        return
    typer.echo(f"wrote {to}")
