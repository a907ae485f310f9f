"""`litebert ablate`: a table of the papers, made again at a scale of your choice."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from litebert.cli.show import Json, print_json, print_table, stoppable
from litebert.cli.train import Lines
from litebert.config import UserError

if TYPE_CHECKING:
    from litebert.ablate.run import Job
    from litebert.ablate.table import Table

Some = Annotated[
    list[str] | None, typer.Option("--cells", metavar="CELL", help="Only this cell; may be given several times.")
]


def ablate(
    name: Annotated[str | None, typer.Argument(help="A table: sharing, objective, …; or a TOML file.")] = None,
    scale: Annotated[
        Literal["smoke", "small", "paper"], typer.Option(help="Seconds on a CPU, a minute a cell on a GPU, or all.")
    ] = "smoke",
    to: Annotated[Path | None, typer.Option("--to", help="The table's folder; default: ablations/NAME-SCALE.")] = None,
    shards: Annotated[str, typer.Option(help="The text to train on; smoke has its own.")] = "",
    more_shards: Annotated[str, typer.Option(help="For the table of more data: the same text and more.")] = "",
    data: Annotated[str, typer.Option(help="The folder that holds glue/, squad/ and race/.")] = "",
    seeds: Annotated[int, typer.Option(help="Runs of each cell.", min=1)] = 1,
    cells: Some = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option("--task", help="This task, not the scale's; may be given several times; none: no task."),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting of all cells: run.seed=7; of one: CELL:run.seed=7"),
    ] = None,
    device: Annotated[str, typer.Option(help="cuda or cpu; auto takes a GPU where there is one.")] = "auto",
    devices: Annotated[str, typer.Option(help="Cells side by side: 2, or cuda:0,cuda:3.")] = "",
    reuse: Annotated[
        list[Path] | None,
        typer.Option(help="Another table's folder: a cell trained alike is taken from it; may be given several times."),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="Every table, its cells and what it costs.")] = False,
    one: Annotated[str, typer.Option(hidden=True, help="CELL/SEED: that alone, and no table.")] = "",
    as_json: Json = False,
) -> None:
    """A paper's table made again: cells, figures beside the paper's, and a verdict on each of its findings."""
    if listed:
        show_list(as_json)
        return
    if name is None:
        raise UserError("say which table, or see them all: litebert ablate --list")
    from litebert.ablate.job import new_job

    folder = to or Path("ablations") / f"{Path(name).stem}-{scale}"
    chosen = (sets or (), cells or (), tasks or ())
    job = new_job(name, scale, folder, shards, more_shards, data, seeds, *chosen, device, reuse or ())
    said = ["--scale", scale, "--to", str(folder), "--shards", job.shards, "--data", data, "--seeds", str(seeds)]
    said += ["--more-shards", job.more, "--device", device]
    for option, values in (("--set", sets), ("--cells", cells), ("--task", tasks), ("--reuse", reuse)):
        said += [word for value in values or () for word in (option, str(value))]
    work(job, one, devices, [sys.executable, "-m", "litebert", "ablate", name, *said])
    if not one:
        finish(job, as_json)


def work(job: "Job", one: str, devices: str, command: Sequence[str]) -> None:
    """Make what is not made yet; asked to stop, say how it goes on."""
    from litebert.ablate.devices import pick_devices, run_beside
    from litebert.ablate.run import check, make, run_all
    from litebert.files import alone
    from litebert.train.stopping import signals

    show = Lines(quiet=False)
    with stoppable(), signals() as asked:
        if one:
            cell, _, seed = one.rpartition("/")
            make(job, cell, int(seed), show, asked)
            return
        check(job)
        with alone(job.to):
            if devices:
                run_beside(job, pick_devices(devices), lambda c, s: [*command, "--one", f"{c}/{s}"], show, asked)
            else:
                run_all(job, show, asked)


def finish(job: "Job", as_json: bool) -> None:
    from litebert.ablate.run import results
    from litebert.ablate.table import tabulate
    from litebert.ablate.write import write_table

    table = tabulate(job, results(job))
    if as_json:
        print_json(table.plain())
    else:
        show_table(table)
    written = write_table(table, job.to)  # after it is said: a package may be missing that draws the picture
    typer.echo(f"written: {', '.join(map(str, written))}", err=as_json)


def show_table(table: "Table") -> None:
    from litebert.ablate.write import cells_of, verdict

    heads, rows = cells_of(table, whole=False)
    print_table(f"{table.title}, {table.scale}; beside {table.source}", heads, rows)
    titles = {column.key: column.title for column in table.columns}
    if table.findings:
        found = [[each.claim, titles[each.column], *verdict(each)] for each in table.findings]
        print_table("what the paper found", ["finding", "column", "verdict", "difference"], found)
    for row in table.rows:
        if row.failed:
            typer.echo(f"not whole: {row.cell}, {row.failed}")
    for note in (table.rule, *table.notes):
        typer.echo(note)


def show_list(as_json: bool) -> None:
    from litebert.ablate.job import costs

    found = costs()
    if as_json:
        print_json(found)
        return
    rows = [
        [each["name"], str(each["cells"]), *(_cost(each[scale]) for scale in ("smoke", "small", "paper"))]
        for each in found
    ]
    print_table("pre-training of all cells, one seed", ["table", "cells", "smoke", "small", "paper"], rows)
    typer.echo("smoke on a CPU; small on one GPU, its minutes; paper in FLOPs of its matrix products")


def _cost(cost: dict[str, Any]) -> str:
    if cost["minutes"]:
        return f"{cost['minutes']:g} minutes"
    return f"{cost['steps']:,} steps" if cost["flops"] < 1e15 else f"{cost['steps']:,} steps, {cost['flops']:.1e} FLOPs"
