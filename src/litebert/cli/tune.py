"""`litebert finetune`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from litebert.cli.show import Json, print_json, print_table
from litebert.cli.train import Lines
from litebert.config import UserError

if TYPE_CHECKING:
    from litebert.recipe import TuneRecipe


def finetune(
    model: Annotated[str | None, typer.Argument(help="The model to teach: a folder, a run, a hub name.")] = None,
    to: Annotated[Path | None, typer.Option("--to", help="The run's directory.")] = None,
    task: Annotated[str | None, typer.Option(help="A benchmark: cola, sst2, …, squad, squad2, race.")] = None,
    data: Annotated[str | None, typer.Option(help="The folder of its files.")] = None,
    train: Annotated[str | None, typer.Option(help="Or a file of your own: CSV, TSV, JSONL, Parquet, CoNLL.")] = None,
    dev: Annotated[str | None, typer.Option(help="What to score on; without it a part of --train.")] = None,
    text: Annotated[list[str] | None, typer.Option(help="A column with a text; twice for pairs.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="The column to learn; several for several labels.")] = None,
    kind: Annotated[str | None, typer.Option(help="classify, several, regress, tag, answer, choice.")] = None,
    teacher: Annotated[str | None, typer.Option(help="A model taught the same task, whose answers it follows.")] = None,
    recipe: Annotated[str | None, typer.Option(help="A recipe's name (albert-rte) or a TOML file.")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="Change a setting: tune.rate=2e-5")] = None,
    seeds: Annotated[int, typer.Option(help="So many runs, one a seed: median, best and spread.", min=1)] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in that directory.")] = False,
    device: Annotated[str, typer.Option(help="cuda or cpu; auto takes a GPU where there is one.")] = "auto",
    as_json: Json = False,
) -> None:
    """Teach a model a task: a benchmark, or a file of your own."""
    from litebert.recipe import TuneRecipe, changed, read_recipe
    from litebert.strict import parse

    if to is None:
        raise UserError("say where the run shall live: --to DIRECTORY")
    said = {"name": task, "data": data, "train": train, "dev": dev, "texts": text, "label": label, "kind": kind}
    chosen = None
    if model is not None:
        table: dict[str, Any] = read_recipe(recipe) if recipe else {}
        table["model"] = model
        if train:  # the settings of a recipe, not its files
            table["task"] = {key: value for key, value in table.get("task", {}).items() if key != "name"}
        table.setdefault("task", {}).update({key: value for key, value in said.items() if value})
        if teacher:
            table.setdefault("distill", {})["teacher"] = teacher
        chosen = parse(TuneRecipe, changed(table, sets or []))
    elif not resume or any(said.values()) or recipe or sets or teacher:
        raise UserError("name the model to teach, or go on with a run by --resume alone")
    if seeds > 1 and chosen is None:
        raise UserError("--seeds goes with the model and the task, also when it goes on")
    run(chosen, to, seeds, resume, device, as_json)


def run(chosen: "TuneRecipe | None", to: Path, seeds: int, resume: bool, device: str, as_json: bool) -> None:
    from litebert.train.finetune import finetune as teach
    from litebert.train.processes import joined
    from litebert.train.seeds import finetune_seeds
    from litebert.train.stopping import Stopped

    with joined(device) as processes:
        show = Lines(quiet=not processes.lead)
        try:
            if chosen is not None and seeds > 1:
                found = finetune_seeds(chosen, to, seeds, resume, processes, show)
            else:
                found = teach(chosen, to, resume, processes, show)
        except Stopped as stopped:
            again = "the same command and --resume" if seeds > 1 else f"litebert finetune --to {to} --resume"
            if processes.lead:
                typer.echo(f"{stopped}; go on with: {again}", err=True)
            raise typer.Exit(128 + stopped.signum) from None
    if processes.lead and as_json:
        print_json(found)
    elif processes.lead and seeds > 1:
        show_seeds(found)


def show_seeds(found: dict[str, Any]) -> None:
    rows = [
        [name, *(f"{100 * each[key]:.2f}" for key in ("median", "best", "least", "spread", "error"))]
        for name, each in found["scores"].items()
    ]
    heads = ["score", "median", "best", "least", "spread", "error of the dev set"]
    print_table(f"{len(found['seeds'])} seeds; the model of seed {found['best_seed']} is kept", heads, rows)
    sys.stdout.flush()
