"""`litebert embed` and `litebert probe`: a frozen encoder's vectors, and what a linear model reads off them."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from litebert.cli.show import Json, Precise, print_json, print_table
from litebert.config import UserError

Name = Annotated[str, typer.Argument(metavar="MODEL", help="A model's or run's folder, or a hub name.")]
Pools = Annotated[
    Literal["mean", "first", "pooler"],
    typer.Option(help="The mean of a text's pieces, the first piece's state, or what the pooler makes of that."),
]
Layers = Annotated[
    str,
    typer.Option(
        help="Which hidden states: last, concat4 (the last four side by side), sum4, all-sum, or numbers such as "
        "1,6,12 (side by side; 0 is what goes into the first layer)."
    ),
]
Texts = Annotated[
    list[str] | None, typer.Option("--text", metavar="COLUMN", help="The column of the text; twice for pairs.")
]
Length = Annotated[
    int | None, typer.Option(help="Pieces of a text that are read; default: 512, or what the model takes.")
]
Passes = Annotated[int | None, typer.Option(help="How often a shared layer runs; default: as trained.")]
Device = Annotated[str, typer.Option(help="cuda or cpu; auto takes a GPU where there is one.")]


def embed(
    model: Name,
    file: Annotated[Path, typer.Argument(help="CSV, TSV, JSONL, Parquet, or plain text with a text a line.")],
    to: Annotated[Path, typer.Option("--to", help="The file to write: .parquet, .npy or .npz.")],
    text: Texts = None,
    pool: Pools = "mean",
    layers: Layers = "last",
    length: Length = None,
    passes: Passes = None,
    normalise: Annotated[bool, typer.Option("--normalise", help="Bring every vector to length 1.")] = False,
    precision: Precise = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """One vector a text, in the file's order; the file appears when it is whole."""
    from litebert.infer.embed import embed_file, embedder, writer
    from litebert.infer.model import load
    from litebert.train.processes import pick_device

    writer(to)
    here, loaded = pick_device(device), load(model, precision=precision)
    how = embedder(loaded, pool, layers, length=length, passes=passes, normalise=normalise, device=here)
    taught = loaded.taught.task.texts if loaded.taught and loaded.taught.task.kind != "tag" else ()  # of words
    told = Told()
    columns = tuple(text or ())
    written = embed_file(how, file, to, columns, lambda rows, cut: told(f"{rows:,} texts, {cut:,} cut"), taught)
    told.end()
    if written.cut:
        typer.echo(
            f"{written.cut:,} of {written.rows:,} texts are longer than {how.reading.length} pieces and were cut",
            err=True,
        )
    if as_json:
        said = {"pool": pool, "layers": list(how.layers), "summed": how.summed, "normalised": normalise}
        print_json({"file": str(to)} | asdict(written) | {"length": how.reading.length} | said)
        return
    typer.echo(f"{written.rows:,} vectors of {written.width:,} numbers in {to}")


def probe(
    model: Name,
    task: Annotated[str | None, typer.Option(help="A benchmark: cola, sst2, …, rte.")] = None,
    data: Annotated[str | None, typer.Option(metavar="FOLDER", help="The folder of the benchmark's files.")] = None,
    train: Annotated[str | None, typer.Option(metavar="FILE", help="A training file of your own.")] = None,
    dev: Annotated[str | None, typer.Option(metavar="FILE", help="What to score on; default: a part of train.")] = None,
    text: Texts = None,
    label: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="The column of the label.")] = None,
    kind: Annotated[
        Literal["auto", "classify", "several", "regress", "tag", "answer", "choice"],
        typer.Option(help="What the labels are; auto looks at them."),
    ] = "auto",
    pool: Pools = "mean",
    layers: Layers = "last",
    length: Length = None,
    passes: Passes = None,
    strength: Annotated[str, typer.Option(help="Of the penalty on the weights; auto tries several.")] = "1.0",
    seed: Annotated[int, typer.Option(help="Decides which part of train is held out.")] = 0,
    precision: Precise = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """What a linear model reads off a frozen encoder's vectors, scored on dev."""
    from litebert.infer.embed import embedder
    from litebert.infer.model import load
    from litebert.recipe import TaskConfig
    from litebert.train.probe import probe as fit_and_score
    from litebert.train.processes import pick_device

    weight = penalty(strength)
    config = TaskConfig(
        name=task or "",
        data=data or "",
        train=train or "",
        dev=dev or "",
        texts=tuple(text or ()),
        label=tuple(label or ()),
        kind=kind,
    )
    here, told = pick_device(device), Told()
    how = embedder(load(model, precision=precision), pool, layers, length=length, passes=passes, device=here)
    found = fit_and_score(how, config, weight, seed, told)
    told.end()
    if as_json:
        kept = {name: value for name, value in asdict(found).items() if name != "task"}
        print_json({"model": model, "task": found.task.name or found.task.kind, "pool": pool, "layers": layers} | kept)
        return
    for note in found.notes:
        typer.echo(note, err=True)
    rows = [
        [each.name, f"{100 * each.value:.2f}", f"± {100 * each.error:.2f}", f"{each.count:,}"] for each in found.scores
    ]
    title = (
        f"a linear probe of {found.width:,} numbers, fitted to {found.train:,} examples at strength {found.strength:g}"
    )
    print_table(title, ["score × 100", "", "standard error", "examples"], rows)


def penalty(said: str) -> float | None:
    """
    >>> penalty("0.1"), penalty("auto")
    (0.1, None)
    """
    if said == "auto":
        return None
    try:
        return float(said)
    except ValueError:
        raise UserError(f"--strength {said!r} must be a number above 0, or auto") from None


class Told:
    """Progress on the error stream: one line that is written over, in a terminal only."""

    def __init__(self) -> None:
        self.shown = sys.stderr.isatty()

    def __call__(self, line: str) -> None:
        if self.shown:
            typer.echo(f"\r{line}\x1b[K", err=True, nl=False)

    def end(self) -> None:
        if self.shown:
            typer.echo("", err=True)
