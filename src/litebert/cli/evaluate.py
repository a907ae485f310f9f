"""`litebert evaluate`."""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from litebert.cli.show import Json, print_json, print_table, progress
from litebert.config import UserError


def evaluate(
    models: Annotated[list[str], typer.Argument(metavar="MODEL…", help="A fine-tuned model; several are averaged.")],
    data: Annotated[
        Path | None, typer.Option(help="A labelled file of your own, or with --task a benchmark's folder.")
    ] = None,
    task: Annotated[str, typer.Option(help="A benchmark: cola, sst2, …, squad, squad2, race.")] = "",
    split: Annotated[str, typer.Option(help="Which part of the benchmark: train, dev or test. Default: dev.")] = "",
    text: Annotated[list[str] | None, typer.Option(help="A column with a text; default: as the model learned.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="The column that is right; default: likewise.")] = None,
    to: Annotated[Path | None, typer.Option("--to", help="Write a report into this folder: page and figures.")] = None,
    tune_threshold: Annotated[
        bool, typer.Option("--tune-threshold", help="Choose on this data when no answer is given.")
    ] = False,
    device: Annotated[str, typer.Option(help="cuda or cpu; auto takes a GPU where there is one.")] = "auto",
    as_json: Json = False,
) -> None:
    """Score a fine-tuned model, or several as one, on labelled data."""
    if data is None:
        raise UserError("say what to score on: --data FILE, or --task NAME --data FOLDER")
    from litebert.infer.model import load
    from litebert.infer.predict import ask
    from litebert.report.evaluation import evaluate as run
    from litebert.report.evaluation import read_examples
    from litebert.report.page import PAGE, as_table, check_folder, write_report
    from litebert.train.processes import pick_device

    where = pick_device(device)
    if to is not None:
        check_folder(to)
    progress(f"loading {', '.join(models)}")
    asked = ask(models, [load(name) for name in models], where)
    wanted, examples = read_examples(asked[0].task, data, task, split, text or (), label or ())
    with counting(len(examples)) as say:
        found = run(asked, examples, wanted, tune_threshold, say)
    command = as_command(models, data, task, split, text or [], label or [], to, tune_threshold)
    if to is not None:
        write_report(to, found, models, str(data), command)
    if as_json:
        print_json(as_table(found, models, str(data), command) | ({"report": str(to)} if to is not None else {}))
        return
    rows = [
        [each.name, f"{100 * each.value:.2f}", f"± {100 * each.error:.2f}", f"{each.count:,}"] for each in found.scores
    ]
    if found.calibration is not None:
        made = sum(each.count for each in found.calibration.bins)
        rows.append(["calibration error", f"{100 * found.calibration.error:.2f}", "", f"{made:,}"])
    typer.echo(f"{' + '.join(models)} on {data}: {found.task.describe()}")
    print_table("", ["score × 100", "", "standard error", "examples"], rows)
    for note in found.notes:
        typer.echo(f"note: {note}")
    if to is not None:
        typer.echo(f"wrote {to / PAGE}")


@contextmanager
def counting(total: int) -> Iterator[Callable[[int], Any]]:
    """Progress on the error stream, in a terminal only: what hears how many are done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("examples"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        one = bar.add_task("examples", total=total)
        yield lambda done: bar.update(one, completed=done)


def as_command(
    models: list[str],
    data: Path,
    task: str,
    split: str,
    text: list[str],
    label: list[str],
    to: Path | None,
    tune_threshold: bool,
) -> str:
    """What to type for the same report."""
    words = ["litebert", "evaluate", *models, "--data", str(data)]
    for flag, values in (("--task", [task]), ("--split", [split]), ("--text", text), ("--label", label)):
        words += [word for value in values if value for word in (flag, value)]
    words += ["--to", str(to)] if to is not None else []
    return shlex.join([*words, *(["--tune-threshold"] if tune_threshold else [])])
