"""`litebert evaluate`."""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from litebert.cli.show import Json, print_json, print_table, progress
from litebert.config import UserError

if TYPE_CHECKING:
    from litebert.report.evaluation import Evaluation


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
    shards: Annotated[
        list[Path] | None, typer.Option(help="Or the held-out documents of a corpus, for a pre-trained model.")
    ] = None,
    examples: Annotated[int, typer.Option(min=1, help="With --shards: how many of them.")] = 20_000,
    objective: Annotated[str, typer.Option(help="With --shards: what the pair head tells: sop, nsp, mlm.")] = "auto",
    device: Annotated[str, typer.Option(help="cuda or cpu; auto takes a GPU where there is one.")] = "auto",
    as_json: Json = False,
) -> None:
    """Score a fine-tuned model, or several as one, on labelled data; or a pre-trained one on text."""
    if shards:
        if data is not None or task or split or text or label or to is not None or tune_threshold:
            raise UserError("--shards are for a pre-trained model, the rest for a fine-tuned one: say one or the other")
        held_out(models, shards, examples, objective, device, as_json)
        return
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
    wanted, labelled = read_examples(asked[0].task, data, task, split, text or (), label or ())
    with counting(len(labelled)) as say:
        found = run(asked, labelled, wanted, tune_threshold, say)
    command = as_command(models, data, task, split, text or [], label or [], to, tune_threshold)
    if to is not None:
        write_report(to, found, models, str(data), command)
    if as_json:
        print_json(as_table(found, models, str(data), command) | ({"report": str(to)} if to is not None else {}))
        return
    typer.echo(f"{' + '.join(models)} on {data}: {found.task.describe()}")
    show(found)
    if to is not None:
        typer.echo(f"wrote {to / PAGE}")


def show(found: "Evaluation") -> None:
    rows = [
        [each.name, f"{100 * each.value:.2f}", f"± {100 * each.error:.2f}", f"{each.count:,}"] for each in found.scores
    ]
    if found.calibration is not None:
        made = sum(each.count for each in found.calibration.bins)
        rows.append(["calibration error", f"{100 * found.calibration.error:.2f}", "", f"{made:,}"])
    print_table("", ["score × 100", "", "standard error", "examples"], rows)
    for note in found.notes:
        typer.echo(f"note: {note}")


def held_out(models: list[str], shards: list[Path], examples: int, objective: str, device: str, as_json: bool) -> None:
    """Each model on each corpus, by one protocol (train/heldout.py)."""
    from litebert.infer.model import load
    from litebert.train.heldout import score_model
    from litebert.train.processes import pick_device

    where, lines = pick_device(device), []
    for name in models:
        for folder in shards:
            progress(f"{name} on {folder}")
            with counting(examples) as say:
                found = score_model(load(name), str(folder), objective, examples, where, say)
            lines.append({"model": name, "shards": str(folder)} | found)
    if as_json:
        print_json(lines)
        return
    rows = []
    for line in lines:
        shares = [f"{name}_accuracy" for name in ("masked", "order", "next")]
        told = [f"{100 * line[n]:.2f} ± {100 * line[f'{n}_error']:.2f}" if n in line else "" for n in shares]
        told += [f"{line['perplexity']:.2f}", f"{line['bits_per_character']:.3f}"]
        rows.append([line["model"], line["shards"], *told, f"{line['examples']:,}"])
    columns = [
        "model",
        "held out of",
        "masked (%)",
        "order (%)",
        "next (%)",
        "perplexity",
        "bits a character",
        "examples",
    ]
    print_table("", columns, rows)


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
