"""`litebert corpus build` and `inspect`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from litebert.cli.show import Json, print_json, print_table
from litebert.config import ExampleConfig, MaskConfig, UserError

if TYPE_CHECKING:
    from litebert.corpus.build import Progress
    from litebert.corpus.inspect import Shown

app = typer.Typer(help="Turn text into shards, and look at them.", no_args_is_help=True)

Layouts = Literal["segment-pair", "sentence-pair", "full-sentences", "doc-sentences"]


@app.command()
def build(
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT…", help="Files, folders, patterns or URLs of text.")],
    tokenizer: Annotated[Path, typer.Option(help="The tokenizer: its folder or file.")],
    to: Annotated[Path, typer.Option("--to", help="The folder to write.")],
    text: Annotated[str, typer.Option(help="The column that holds the text, in JSONL, CSV and Parquet.")] = "text",
    language: Annotated[str, typer.Option(help="For splitting sentences: en, de, hi, …")] = "en",
    held_out: Annotated[float, typer.Option(help="Share of the documents that is set aside.")] = 0.025,
    seed: Annotated[int, typer.Option(help="Decides which documents are set aside.")] = 0,
    drop_duplicates: Annotated[
        Literal["none", "documents", "paragraphs", "both"], typer.Option(help="Leave out what has been there before.")
    ] = "none",
    decontaminate: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Leave out documents that hold this benchmark's text.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Count broken rows instead of stopping.")] = False,
    workers: Annotated[int, typer.Option(help="Processes on this machine.", min=1)] = 1,
    ray: Annotated[str | None, typer.Option(metavar="ADDRESS", help="A Ray cluster, or local, instead.")] = None,
    as_json: Json = False,
) -> None:
    """Text to memory-mapped shards. Killed, it goes on where it was; run again, it does nothing."""
    from litebert.corpus.build import BuildOptions
    from litebert.corpus.build import build as build_shards
    from litebert.corpus.engines import Local, Ray
    from litebert.corpus.read import Bad
    from litebert.text.tokenizer import Tokenizer

    if ray is not None and workers != 1:
        raise UserError("--workers is for this machine and --ray for a cluster; give one of them")
    options = BuildOptions(
        column=text,
        language=language,
        held_out=held_out,
        seed=seed,
        drop_duplicates=drop_duplicates,
        decontaminate=tuple(decontaminate or ()),
        skip_bad=skip_bad,
    )
    engine = Ray(ray) if ray is not None else Local(workers)
    bad = Bad(skip=skip_bad)
    manifest = build_shards(inputs, Tokenizer.load(tokenizer), to, options, engine, Said(), bad)
    for line in bad.first:
        typer.echo(f"left out: {line}", err=True)
    if as_json:
        print_json({"folder": str(to)} | {key: manifest[key] for key in ("tokenizer", "inputs", "options", "counts")})
        return
    counts = [[name, f"{count:,}"] for name, count in manifest["counts"].items()]
    print_table(str(to), ["", "count"], counts)
    typer.echo(f"next: litebert corpus inspect {to}")


class Said:
    """Progress on the error stream: one line that is written over, in a terminal only."""

    def __init__(self) -> None:
        import time

        self.clock, self.start = time.monotonic, time.monotonic()

    def __call__(self, progress: "Progress") -> None:
        if sys.stderr.isatty():
            rate = progress.characters / 1e6 / max(1e-9, self.clock() - self.start)
            line = f"{progress.blocks} blocks, {progress.documents:,} documents, {rate:.1f} M characters a second"
            typer.echo(f"\r{line}\x1b[K", err=True, nl=False)


@app.command()
def inspect(
    folder: Annotated[Path, typer.Argument(help="The folder of shards.")],
    part: Annotated[Literal["train", "held-out"], typer.Option(help="Which part.")] = "train",
    layout: Annotated[Layouts, typer.Option(help="How sentences become an example.")] = "segment-pair",
    objective: Annotated[Literal["mlm", "sop", "nsp"] | None, typer.Option(help="Default: sop for pairs.")] = None,
    length: Annotated[int, typer.Option(help="Pieces an example.")] = 128,
    ngram: Annotated[int, typer.Option(help="The longest span.")] = 3,
    unit: Annotated[Literal["word", "piece"], typer.Option(help="What spans are made of.")] = "word",
    rate: Annotated[float, typer.Option(help="Share of the pieces that is predicted.")] = 0.15,
    sample: Annotated[int, typer.Option(help="Examples to count over.", min=1)] = 2000,
    show: Annotated[int, typer.Option(help="Examples to print.", min=0)] = 3,
    seed: Annotated[int, typer.Option(help="Decides the examples.")] = 0,
    as_json: Json = False,
) -> None:
    """Counts, shares, and a few examples with their masks in colour."""
    from litebert.corpus.batches import Stream
    from litebert.corpus.inspect import inspect as look
    from litebert.corpus.inspect import show as show_example
    from litebert.text.tokenizer import Tokenizer

    chosen = objective or ("sop" if layout.endswith("pair") else "mlm")
    mask = MaskConfig(rate=rate, unit=unit, ngram=ngram)
    config = ExampleConfig(layout=layout, objective=chosen, length=length, mask=mask)
    figures, batch, _ = look(Stream(str(folder), config, min(64, sample), seed, part), sample)
    tokenizer = Tokenizer.load(folder / "tokenizer")
    examples = [show_example(batch, row, tokenizer) for row in range(min(show, len(batch.lengths)))]
    if as_json:
        rows = [[(each.piece, each.seen, each.predicted) for each in example] for example in examples]
        print_json(figures | {"examples": rows})
        return
    _print_figures(str(folder), figures)
    for row, example in enumerate(examples):
        label = "" if batch.pair_labels is None else f", pair label {batch.pair_labels[row]}"
        _print_example(f"example {row + 1}{label}", example)


def _print_figures(folder: str, figures: dict[str, Any]) -> None:
    rows = []
    for key, value in figures.items():
        name = key.replace("_", " ")
        if isinstance(value, dict):
            rows += [[f"{name}: {inner}", _figure(part)] for inner, part in value.items()]
        elif isinstance(value, list):
            rows += [[f"{name}: {n} words", _figure(part)] for n, part in enumerate(value, 1)]
        elif value is not None:
            rows.append([name, _figure(value)])
    print_table(folder, ["", "value"], rows)


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _print_example(title: str, example: "list[Shown]") -> None:
    """Predicted pieces: red behind a mask, yellow where another piece stands, green where they stand themselves."""
    from rich.console import Console
    from rich.text import Text

    text = Text(title + "\n", style="bold")
    for each in example:
        piece = each.piece.replace("▁", " ").replace("Ġ", " ")
        if not each.predicted:
            text.append(piece if piece.startswith(" ") else f"{piece}", style="default")
        elif each.seen == each.piece:
            text.append(f"[{piece}]", style="green")
        else:
            replaced = each.seen.endswith(("[MASK]", "<mask>"))
            text.append(
                f"[{piece}]" if replaced else f"[{piece}→{each.seen}]", style="bold red" if replaced else "yellow"
            )
    Console(width=None if sys.stdout.isatty() else 120).print(text)
