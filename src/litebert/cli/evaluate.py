"""`litebert evaluate`."""

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from litebert.cli.show import Bound, FromPasses, Json, Precise, print_json, print_table, progress
from litebert.config import UserError

if TYPE_CHECKING:
    from litebert.infer.predict import Asked
    from litebert.report.evaluation import Evaluation
    from litebert.tasks.example import Example, Task


def evaluate(
    models: Annotated[list[str], typer.Argument(metavar="MODEL…", help="A fine-tuned model; several are averaged.")],
    data: Annotated[
        Path | None, typer.Option(help="A labelled file of your own, or with --task a benchmark's folder.")
    ] = None,
    task: Annotated[str, typer.Option(help="A benchmark: cola, sst2, …, squad, squad2, race.")] = "",
    split: Annotated[
        str,
        typer.Option(help="Which part: train, dev (the default) or test; of --shards held-out (likewise) or train."),
    ] = "",
    text: Annotated[list[str] | None, typer.Option(help="A column with a text; default: as the model learned.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="The column that is right; default: likewise.")] = None,
    to: Annotated[Path | None, typer.Option("--to", help="Write a report into this folder: page and figures.")] = None,
    tune_threshold: Annotated[
        bool, typer.Option("--tune-threshold", help="Choose on this data when no answer is given.")
    ] = False,
    passes: Annotated[
        str, typer.Option(metavar="N", help="How often a shared layer runs; 1..12 or 3,6,12: score against time.")
    ] = "",
    settle: Bound = None,
    from_passes: FromPasses = None,
    precision: Precise = None,
    shards: Annotated[
        list[Path] | None, typer.Option(help="Or the held-out documents of a corpus, for a pre-trained model.")
    ] = None,
    examples: Annotated[int | None, typer.Option(min=1, help="With --shards: how many; default 20,000.")] = None,
    objective: Annotated[str, typer.Option(help="With --shards: what the pair head tells: sop, nsp, mlm.")] = "",
    length: Annotated[
        list[int] | None, typer.Option(min=8, help="With --shards: pieces an example; default 128, as models compare.")
    ] = None,
    device: Annotated[str, typer.Option(help="cuda or cpu; auto takes a GPU where there is one.")] = "auto",
    as_json: Json = False,
) -> None:
    """Score a fine-tuned model, or several as one, on labelled data; or a pre-trained one on text."""
    request = Request(
        models=models,
        data=data,
        task=task,
        split=split,
        text=tuple(text or ()),
        label=tuple(label or ()),
        to=to,
        tune_threshold=tune_threshold,
        passes=depths(passes),
        settle=settle,
        from_passes=from_passes,
        precision=precision,
    )
    if shards:
        if replace(request, passes=(), split="") != Request(models=models):
            raise UserError("--shards are for a pre-trained model, the rest for a fine-tuned one: say one or the other")
        held_out(request, shards, examples or 20_000, objective, length or (0,), device, as_json)
        return
    if examples is not None or objective or length:
        raise UserError("--examples, --objective and --length go with --shards; labelled data is scored whole")
    labelled(request, device, as_json)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to score, on what and how."""

    models: list[str]
    data: Path | None = None
    task: str = ""
    split: str = ""
    text: tuple[str, ...] = ()
    label: tuple[str, ...] = ()
    to: Path | None = None
    tune_threshold: bool = False
    passes: tuple[int, ...] = ()  # none: as the model was trained
    settle: float | None = None
    from_passes: int | None = None
    precision: str | None = None  # none: float32 on a CPU, bf16 on a GPU

    @property
    def command(self) -> str:
        """What to type for the same report."""
        words = ["litebert", "evaluate", *self.models, "--data", str(self.data)]
        for flag, values in (
            ("--task", [self.task]),
            ("--split", [self.split]),
            ("--text", self.text),
            ("--label", self.label),
        ):
            words += [word for value in values if value for word in (flag, value)]
        words += ["--to", str(self.to)] if self.to is not None else []
        words += ["--tune-threshold"] if self.tune_threshold else []
        words += ["--passes", ",".join(map(str, self.passes))] if self.passes else []
        words += ["--settle", f"{self.settle!r}"] if self.settle is not None else []
        words += ["--from-passes", str(self.from_passes)] if self.from_passes is not None else []
        words += ["--precision", self.precision] if self.precision is not None else []
        return shlex.join(words)


def depths(said: str) -> tuple[int, ...]:
    """Numbers of passes, the fewest first.

    >>> depths("4"), depths("12,3,6"), depths("1..3,6"), depths("")
    ((4,), (3, 6, 12), (1, 2, 3, 6), ())
    """
    found: set[int] = set()
    for part in said.split(",") if said else ():
        ends = re.fullmatch(r"\s*(\d{1,4})\s*(?:\.\.\s*(\d{1,4})\s*)?", part)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if not 1 <= first <= last:
            raise UserError(
                f"--passes {said!r}; give numbers from 1 to 9999: one such as 4, a list such as 3,6,12, or a range "
                "such as 1..12"
            )
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def labelled(request: Request, device: str, as_json: bool) -> None:
    """Fine-tuned models on labelled data; at several depths, the curve of score against time."""
    from litebert.infer.model import load
    from litebert.infer.predict import ask
    from litebert.infer.settle import settle_of
    from litebert.report.evaluation import evaluate as run
    from litebert.report.evaluation import read_examples
    from litebert.report.page import PAGE, as_table, check_folder, write_report
    from litebert.train.processes import pick_device

    models, data, to = request.models, request.data, request.to
    if data is None:
        raise UserError("say what to score on: --data FILE, or --task NAME --data FOLDER")
    where, stop = pick_device(device), settle_of(request.settle, request.from_passes)
    if to is not None:
        check_folder(to)
    progress(f"loading {', '.join(models)}")
    asked = ask(
        models,
        [load(name, precision=request.precision) for name in models],
        where,
        max(request.passes, default=None),
        stop,
    )
    wanted, examples = read_examples(asked[0].task, data, request.task, request.split, request.text, request.label)
    if len(request.passes) > 1:
        curve(request, asked, wanted, examples, as_json)
        return
    with counting(len(examples)) as say:
        found = run(asked, examples, wanted, request.tune_threshold, say)
    if to is not None:
        write_report(to, found, models, str(data), request.command)
    if as_json:
        table = as_table(found, models, str(data), request.command)
        print_json(table | ({"report": str(to)} if to is not None else {}))
        return
    typer.echo(f"{' + '.join(models)} on {data}: {found.task.describe()}")
    show(found)
    if to is not None:
        typer.echo(f"wrote {to / PAGE}")


def curve(
    request: Request, asked: "Sequence[Asked]", task: "Task", examples: "Sequence[Example]", as_json: bool
) -> None:
    """Score and time at each depth."""
    from litebert.report.depths import as_table, at_depths
    from litebert.report.page import CURVE, write_depths

    with counting(len(examples)) as say:
        found = at_depths(asked, examples, request.passes, task, request.tune_threshold, say)
    table = as_table(found, asked, request.models, str(request.data), request.command)
    if request.to is not None:
        write_depths(request.to, found, table)
    if as_json:
        print_json(table | ({"report": str(request.to)} if request.to is not None else {}))
        return
    typer.echo(f"{' + '.join(request.models)} on {request.data}: {task.describe()}; {len(examples):,} examples")
    names = [f"{each.name} × 100" for each in found.depths[0].scores]
    rows = []
    for each in found.depths:
        told = [f"{100 * one.value:.2f} ± {100 * one.error:.2f}" for one in each.scores]
        taken = [f"{each.taken:.2f}"] if found.settle else []
        rows.append([str(each.passes), *taken, *told, f"{each.seconds:.3f}"])
    taken = ["taken on average"] if found.settle else []
    print_table("", ["passes", *taken, *names, "seconds for 1,000 examples"], rows)
    for note in found.notes:
        typer.echo(f"note: {note}")
    if request.to is not None:
        typer.echo(f"wrote {request.to / CURVE}")


def show(found: "Evaluation") -> None:
    rows = [
        [each.name, f"{100 * each.value:.2f}", f"± {100 * each.error:.2f}", f"{each.count:,}"] for each in found.scores
    ]
    if found.calibration is not None:
        made = sum(each.count for each in found.calibration.bins)
        rows.append(["calibration error", f"{100 * found.calibration.error:.2f}", "", f"{made:,}"])
    if found.passes is not None:
        rows.append(["passes of an example (mean)", f"{found.passes:.2f}", "", f"{found.examples:,}"])
    print_table("", ["score × 100", "", "standard error", "examples"], rows)
    for note in found.notes:
        typer.echo(f"note: {note}")


def held_out(
    request: Request,
    shards: Sequence[Path],
    examples: int,
    objective: str,
    lengths: Sequence[int],
    device: str,
    as_json: bool,
) -> None:
    """Each model on each corpus at each depth and length, by one protocol (train/heldout.py)."""
    from litebert.infer.model import load
    from litebert.train.heldout import fits, part_named, score_model, trained_for
    from litebert.train.processes import pick_device

    where, lines, part = pick_device(device), [], part_named(request.split)
    for name in request.models:  # a mistake is told before hours are spent on the models before it
        fits(max(lengths), load(name))
    for name in request.models:
        model = load(name)
        for folder, passes, length in product(shards, request.passes or (0,), lengths):
            progress(f"{name} on {folder}")
            with counting(examples) as say:
                asks = objective or trained_for(name, model)
                found = score_model(model, str(folder), asks, examples, where, say, passes, length, part)
            lines.append({"model": name, "shards": str(folder)} | found)
    if as_json:
        print_json(lines)
        return
    rows = []
    for line in lines:
        shares = [f"{name}_accuracy" for name in ("masked", "order", "next")]
        told = [f"{100 * line[n]:.2f} ± {100 * line[f'{n}_error']:.2f}" if n in line else "" for n in shares]
        told += [f"{line['perplexity']:.2f}", f"{line['bits_per_character']:.3f}"]
        asked = [str(line[name]) for name in ("model", "shards", "part", "passes", "length")]
        rows.append([*asked, *told, f"{line['examples']:,}"])
    shares = ["masked (%)", "order (%)", "next (%)"]
    columns = ["model", "shards", "part", "passes", "length", *shares, "perplexity", "bits a character", "examples"]
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
