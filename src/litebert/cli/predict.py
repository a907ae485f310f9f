"""`litebert predict`: the rows of a file to a file, or texts that are typed to the terminal."""

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.cli.show import Bound, FromPasses, Json, Precise, print_json, print_table
from litebert.config import UserError
from litebert.files import meant

if TYPE_CHECKING:
    from litebert.infer.ask import Told
    from litebert.infer.model import Model

Texts = tuple[str, ...]
PIPED = "-"


@dataclass(frozen=True, kw_only=True)
class How:
    """How a model is asked, wherever the texts come from."""

    passes: int | None
    settle: float | None
    from_passes: int | None
    precision: str | None
    device: str


def predict(
    model: Annotated[str, typer.Argument(help="A model that was taught a task: a folder, a run, a hub name.")],
    file: Annotated[
        Path | None,
        typer.Argument(
            help="What to answer: CSV, TSV, JSONL, Parquet, CoNLL, plain text with a text a line, or a benchmark's; "
            "- reads standard input: a text a line, JSONL, or CSV."
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="Where to: .csv, .tsv, .jsonl, or .json as SQuAD has it.")
    ] = None,
    asks: Annotated[
        list[str] | None,
        typer.Option("--ask", metavar="TEXT", help="Instead of FILE: a text, answered here; as often as you like."),
    ] = None,
    beside: Annotated[
        list[str] | None,
        typer.Option(
            "--and", metavar="TEXT", help="With --ask: a pair's second text, a question's passage, or an option each."
        ),
    ] = None,
    also: Annotated[list[str] | None, typer.Option("--with", help="Another model, averaged with the first.")] = None,
    text: Annotated[list[str] | None, typer.Option(help="A column with a text; twice for pairs.")] = None,
    split: Annotated[str, typer.Option(help="Of a benchmark's folder: train, dev or test.")] = "test",
    form: Annotated[str | None, typer.Option("--format", help="csv, tsv, jsonl, glue or squad.")] = None,
    passes: Annotated[int | None, typer.Option(help="How often a shared layer runs; default: as trained.")] = None,
    settle: Bound = None,
    from_passes: FromPasses = None,
    precision: Precise = None,
    device: Annotated[str, typer.Option(help="cuda or cpu; auto takes a GPU where there is one.")] = "auto",
    as_json: Json = False,
) -> None:
    """Answer every row of a file, or texts that you type. Killed, the same command goes on where it stopped."""
    how = How(passes=passes, settle=settle, from_passes=from_passes, precision=precision, device=device)
    if asks:
        said = {"FILE": file, "--to": to, "--with": also, "--text": text, "--format": form}
        left = [name for name, value in said.items() if value]
        if left:
            raise UserError(f"--ask is answered here, by one model: leave out {', '.join(left)}")
        typed(model, asks, beside or [], how, as_json)
        return
    if beside:
        raise UserError("--and says what stands beside the text of --ask; give that too")
    if file is None:
        raise UserError("say what to answer: FILE --to ANSWERS, or a text by --ask TEXT")
    check_file(file)
    if to is None:
        raise UserError("say where the answers go: --to answers.csv")
    to_file([model, *(also or [])], file, to, text or [], split, form, how, as_json)


def to_file(
    names: list[str], file: Path, to: Path, text: list[str], split: str, form: str | None, how: How, as_json: bool
) -> None:
    from litebert.infer.model import find, load
    from litebert.infer.predict import ask
    from litebert.infer.settle import settle_of
    from litebert.infer.stream import format_of, piped, predict_file, read_asked
    from litebert.train.processes import pick_device

    chosen = format_of(to, form)
    here, stop = pick_device(how.device), settle_of(how.settle, how.from_passes)
    models = ask(names, [load(name, precision=how.precision) for name in names], here, how.passes, stop)
    task = replace(models[0].task, texts=tuple(text or models[0].task.texts))
    bound = {"passes": how.passes, "precision": how.precision, "settle": asdict(stop) if stop else None}
    when = [written(path) for path in (*map(find, names), file) if str(path) != PIPED]
    with piped(task, sys.stdin.buffer) if str(file) == PIPED else nullcontext(file) as source:
        size = source.stat().st_size if source.is_file() else 0
        signature = {"models": names, "file": str(file), "bytes": size, "format": chosen, "texts": list(task.texts)}
        found = predict_file(
            models,
            read_asked(task, source, split),
            to,
            chosen,
            signature | {"split": split, "written": when} | bound,
            lambda rows: typer.echo(f"{rows:,} rows", err=True),
        )
    mean = found["passes"] / max(1, found["rows"] * len(models))
    if stop is not None:
        deepest = max(each.most for each in models)
        typer.echo(f"an example took {mean:.2f} of at most {deepest} passes on average", err=True)
    if as_json:
        counts = {key: found[key] for key in ("rows", "cut", "resumed")}
        print_json({"to": str(to), **counts} | ({"passes": mean} if stop else {}))
        return
    if found["resumed"]:
        typer.echo(f"went on after {found['resumed']:,} rows", err=True)
    most = models[0].reading.length
    cut = f"; {found['cut']:,} texts were longer than {most} pieces and were cut" if found["cut"] else ""
    typer.echo(f"{found['rows']:,} predictions in {to}{cut}")


def written(path: Path) -> int:
    """When a file, or the newest in a folder, was: a model taught anew does not go on with what another said."""
    files = [each for each in path.iterdir() if each.is_file()] if path.is_dir() else [path]
    return max((each.stat().st_mtime_ns for each in files if each.exists()), default=0)


def check_file(file: Path) -> None:
    """A text where a file should be is mostly one to be answered."""
    text = str(file)
    if text == PIPED or os.path.exists(text):
        return
    if " " in text or ("/" not in text and not glob(text)):
        remedy = f"; a text that you type is answered by: --ask {shlex.quote(text)}"
        raise UserError(f"no file or folder {text}{meant(text) or remedy}")


def typed(name: str, asks: list[str], beside: list[str], how: How, as_json: bool) -> None:
    """Texts of the command line, answered on the terminal."""
    from litebert.infer.model import load
    from litebert.train.processes import pick_device

    model = load(name, device=str(pick_device(how.device)), precision=how.precision)
    told = answers(model, asks, beside, how)
    if as_json:
        print_json({"answers": [{"texts": list(texts)} | asdict(each) for texts, each in told]})
    else:
        show(model, told)


def answers(model: "Model", asks: list[str], beside: list[str], how: How) -> "list[tuple[Texts, Told]]":
    """Texts, as the model's task takes them together, and what it says of them."""
    from litebert.infer.settle import check_settle, settle_of
    from litebert.infer.stream import columns_of

    if not all(text.strip() for text in (*asks, *beside)):
        raise UserError("one of the texts is empty; give --ask, and --and where it is said, something to read")
    task, passes = model.taught.task if model.taught else None, how.passes
    kind, stop = task.kind if task else "classify", settle_of(how.settle, how.from_passes)
    if task and stop:
        check_settle(stop, model.config, task, passes or model.config.layers)
    if kind == "tag":
        if beside:
            raise UserError("this model tags the words of one text; leave --and out")
        return [((text,), told) for text, told in zip(asks, model.tag(asks, passes=passes), strict=True)]
    if kind == "choice":
        if len(asks) != 1 or len(beside) < 2:
            raise UserError("this model chooses: give one passage by --ask, and two options or more, each by --and")
        told = model.choose(asks[0], beside, passes=passes, settle=how.settle, from_passes=how.from_passes)
        return [((asks[0], *beside), told)]
    rows = paired(asks, beside, columns_of(task) if task else ())
    if kind == "answer":
        return [((asked, passage), model.answer(asked, passage, passes=passes)) for asked, passage in rows]
    texts = [row[0] if len(row) == 1 else (row[0], row[1]) for row in rows]
    found = model.classify(texts, passes=passes, settle=how.settle, from_passes=how.from_passes)
    return list(zip(rows, found, strict=True))


def paired(asks: list[str], beside: list[str], names: Sequence[str]) -> "list[Texts]":
    """Each text with the one beside it, if there is one; `names`: of the texts that the model reads, where known.

    >>> paired(["Who?", "When?"], ["Ann came at noon."], ["question", "context"])
    [('Who?', 'Ann came at noon.'), ('When?', 'Ann came at noon.')]
    """
    if names and len(names) != 1 + bool(beside):
        remedy = "leave --and out" if beside else "give the second by --and"
        raise UserError(f"this model reads {' and '.join(names)}; {remedy}")
    if len(beside) not in (0, 1, len(asks)):
        raise UserError(f"{len(beside)} texts by --and for {len(asks)} by --ask; give one for all, or one for each")
    if not beside:
        return [(text,) for text in asks]
    return list(zip(asks, beside * len(asks) if len(beside) == 1 else beside, strict=True))


def show(model: "Model", told: "list[tuple[Texts, Told]]") -> None:
    """A line for each text; of tags a table for each."""
    from litebert.infer.ask import Tagged
    from litebert.infer.stream import as_text

    assert model.taught is not None
    task, rows = model.taught.task, []
    for texts, each in told:
        if isinstance(each, Tagged):
            words = [[word.text, word.tag, f"{100 * word.probability:.1f} %"] for word in each.words]
            typer.echo(texts[0])
            print_table("", ["word", "tag", "probability"], words)
            continue
        value = texts[1:][int(str(each.value))] if task.kind == "choice" else as_text(task, each.value)
        share = "" if each.probability is None else f"{100 * each.probability:.1f} %"
        whole = " | ".join(texts if task.kind not in ("answer", "choice") else texts[:1])
        rows.append([whole, value or "(none)", share])
    if rows:
        print_table("", ["text", "answer", "probability"], rows)
