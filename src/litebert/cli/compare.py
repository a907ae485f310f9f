"""`litebert compare`."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from litebert.cli.names import named
from litebert.cli.show import Json, Precise, print_json, progress
from litebert.config import UserError

if TYPE_CHECKING:
    from litebert.report.advice import Advice

FILES = ("compare.md", "compare.json", "compare.png")


def compare(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL…", help="Folders or hub names; NAME=MODEL names one in the table.")
    ],
    task: Annotated[str, typer.Option(help="Score them too: a benchmark that all were fine-tuned on.")] = "",
    data: Annotated[
        Path | None, typer.Option(help="Its folder; or without --task a labelled file of your own.")
    ] = None,
    split: Annotated[str, typer.Option(help="Which part of the benchmark: train, dev or test. Default: dev.")] = "",
    to: Annotated[Path | None, typer.Option("--to", help="Write table, figures and scatter into this folder.")] = None,
    length: Annotated[int | None, typer.Option(min=1, help="Pieces of a text that is timed; default: 128.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that each model takes.")] = 5,
    precision: Precise = None,
    device: Annotated[str, typer.Option(help="cuda or cpu: cpu leaves a GPU out; auto takes one if there.")] = "auto",
    as_json: Json = False,
) -> None:
    """Size, speed, memory and score of several models side by side, and whether the usual advice holds."""
    from litebert.bench.compare import measure
    from litebert.report.advice import check_advice
    from litebert.report.compare import markdown, prepare, score
    from litebert.report.page import check_folder
    from litebert.train.processes import pick_device

    if task and data is None:
        raise UserError(f"--task {task} says how to read what to score on; say where it is: --data FOLDER")
    if split and not task:
        raise UserError(f"--split {split} is a part of a benchmark; say which by --task, or leave it out")
    where, words = pick_device(device), named(models)
    if to is not None:
        check_folder(to)
    exams = {} if data is None else prepare(words, data, task, split, where)
    scores = score(exams, progress)
    exams.clear()
    found, common = measure(words, scores, length, rounds, precision, where.type == "cuda", progress)
    advice = check_advice(found)
    text = markdown(found, common["length"]) + "\n" + "".join(f"{line}\n" for line in _lines(common, advice))
    sizes = {"length": length, "rounds": rounds, "precision": precision, "device": device}
    command = _command(words, task=task, data=data, split=split, to=to, **sizes)
    table = {
        "command": command,
        "models": [asdict(each) for each in found],
        "advice": [asdict(each) for each in advice],
    }
    if to is not None:
        _write(to, text, table | common, found)
    if as_json:
        print_json(table | common | ({"report": str(to)} if to is not None else {}))
        return
    typer.echo(text, nl=False)
    if to is not None:
        typer.echo(f"wrote {', '.join(str(to / name) for name in FILES)}")


def _lines(common: dict[str, Any], advice: "list[Advice]") -> list[str]:
    threads = "1 thread" if common["threads"] == 1 else f"{common['threads']} threads"
    lines = [
        f"Times: medians of the encoder in turns, in {common['precision']} on a CPU with {threads}"
        + (f", in bf16 on {common['device']}." if "device" in common else "; no GPU was measured."),
        *(f"Note: {note}." for note in common["notes"]),
        "",
        "The usual advice, among these models:",
        "",
    ]
    for each in advice:
        lines += [
            f"- {each.when}: {each.family}. **{each.verdict[0].upper()}{each.verdict[1:]}**: {each.why}.",
            f"  The rule: {each.rule}.",
        ]
    return lines


def _command(words: dict[str, str], **flags: Any) -> str:
    """What to type for the same again."""
    said: list[str] = ["litebert", "compare", *(f"{name}={word}" for name, word in words.items())]
    for flag, value in flags.items():
        said += [f"--{flag}", str(value)] if value else []
    return shlex.join(said)


def _write(to: Path, text: str, table: dict[str, Any], found: list[Any]) -> None:
    import json

    from litebert.report.compare import draw_compare
    from litebert.report.figure import picture
    from litebert.report.page import write_folder

    content = (json.dumps(table, indent=1, ensure_ascii=False) + "\n").encode()
    drawn = picture(draw_compare(found, table["length"]))
    write_folder(to, dict(zip(FILES, (text.encode(), content, drawn), strict=True)))
