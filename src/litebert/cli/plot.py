"""`litebert plot …`: pictures."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from litebert.cli.model import find_config
from litebert.cli.names import named
from litebert.cli.show import Json, print_json, print_table, progress
from litebert.config import UserError

app = typer.Typer(help="Draw runs and models.", no_args_is_help=True)

To = Annotated[Path, typer.Option("--to", help="The picture: .png, .svg or .pdf.")]
Text = Annotated[list[str] | None, typer.Option("--text", help="A text to read; may be said several times.")]
Texts = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Or a file of texts: a line each, or a table with a column text.")
]
Ids = Annotated[
    str,
    typer.Option(
        metavar="FILE",
        help="Pieces for models without a tokenizer: .npy, .npz (input_ids) or .json; `random` makes some up. "
        "Without a text, for all models.",
    ),
]


@app.callback()
def plot() -> None:
    """Draw runs and models."""


@app.command()
def curves(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Directories of runs.")],
    to: To = Path("curves.png"),
    over: Annotated[str, typer.Option(help="minutes, steps, or pieces (of pre-training).")] = "minutes",
    as_json: Json = False,
) -> None:
    """Loss, scores and speed of one or several runs: pre-training, fine-tuning or both."""
    from litebert.report.curves import plot_curves

    found = plot_curves(runs, to, over)
    if as_json:
        print_json(found)
        return
    typer.echo(f"wrote {to}")


@app.command()
def layers(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL…", help="Folders or hub names; NAME=MODEL names one in the picture.")
    ],
    text: Text = None,
    texts: Texts = None,
    ids: Ids = "",
    to: To = Path("layers.png"),
    as_json: Json = False,
) -> None:
    """How far each layer moves the states: L2 distance and cosine of its input and output, of several models."""
    from litebert.infer.model import load
    from litebert.report.layers import as_table, plot_layers
    from litebert.report.rows import given

    what = given(text or [], texts, ids)
    paths = plot_layers({name: partial(load, word) for name, word in named(models).items()}, what, to, progress)
    for path in paths:
        if path.cut:
            typer.echo(
                f"{path.name}: {path.cut:,} of {path.rows:,} rows are longer than it takes and were cut", err=True
            )
    if as_json:
        print_json({"picture": str(to), "models": as_table(paths)})
        return
    rows = []
    for path in paths:
        ends = (f"{min(side):.3f} to {max(side):.3f}" for side in (path.distance, path.cosine))
        rows.append([path.name, path.family, path.source, f"{path.pieces:,}", str(path.depth), *ends])
    print_table("", ["model", "family", "read", "pieces", "layers", "L2 distance", "cosine"], rows)
    typer.echo(f"wrote {to}")


@app.command()
def attention(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder or hub name; NAME=MODEL names it.")],
    text: Annotated[str | None, typer.Option("--text", help="The text to read.")] = None,
    ids: Ids = "",
    layers: Annotated[str, typer.Option(help="Which layers: numbers such as 1,6,-1, last or all.")] = "last",
    heads: Annotated[str, typer.Option(help="Which heads: numbers, all, or mean for the mean of all.")] = "all",
    to: To = Path("attention.png"),
    as_json: Json = False,
) -> None:
    """Who looks at whom: the heads of chosen layers as small panels."""
    from litebert.infer.model import load
    from litebert.report.attention import as_table, plot_attention
    from litebert.report.rows import given

    what = given([] if text is None else [text], None, ids)
    ((name, word),) = named([model]).items()
    progress(f"loading {name}")
    found = plot_attention(name, load(word), what, to, layers, heads)
    if found.lost:
        kept = len(found.pieces)
        typer.echo(f"the text has {kept + found.lost} pieces and was cut to {kept}", err=True)
    if as_json:
        print_json({"picture": str(to)} | as_table(found))
        return
    typer.echo(f"wrote {to}: {len(found.panels)} panels of {len(found.pieces)} pieces")


@app.command()
def memory(
    members: Annotated[
        list[str] | None, typer.Argument(metavar="[MEMBER]…", help="Presets, recipes or folders; default: the family.")
    ] = None,
    fit: Annotated[str, typer.Option(help="A card's memory.")] = "12GiB",
    to: To = Path("memory.png"),
    as_json: Json = False,
) -> None:
    """The largest training batch by length, beside BERT's published ones for 12 GB."""
    from litebert.model.memory import parse_bytes
    from litebert.report.batches import MEMBERS, plot_memory

    configs = {name: find_config(word, [])[0] for name, word in named(members or MEMBERS).items()}
    budget = parse_bytes(fit)
    if not budget:
        raise UserError(f"--fit {fit}; give an amount of memory such as 12GiB or 80GB")
    found = plot_memory(configs, budget, to)
    if as_json:
        print_json(found)
        return
    lengths = sorted({row["length"] for rows in found["curves"].values() for row in rows})
    rows = []
    for name, curve in found["curves"].items():
        batches = {row["length"]: str(row["batch"]) for row in curve}
        rows.append([name, *(batches.get(length, "") for length in lengths)])
    for name, points in found["published_12GB"].items():
        batches = {point["length"]: str(point["batch"]) for point in points}
        rows.append([f"{name}, published", *(batches.get(length, "") for length in lengths)])
    print_table(f"largest training batch in {fit}, by length", ["", *map(str, lengths)], rows)
    if not found["published_12GB"]:
        typer.echo("BERT's published batches are of bert-base and bert-large on 12 GB, and so are not beside these")
    typer.echo(f"wrote {to}")
