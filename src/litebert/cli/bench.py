"""`litebert bench …`: this project and its peers, side by side in one run."""

from pathlib import Path
from typing import Annotated

import typer

from litebert.cli.show import Json, print_json, print_table, progress, size

app = typer.Typer(help="Measure litebert and its peers, side by side in one run.", no_args_is_help=True)


@app.command()
def forward(
    model: Annotated[str, typer.Option(help="A preset.")] = "albert-base",
    repeats: Annotated[int, typer.Option(help="Rounds a shape.", min=1)] = 15,
    as_json: Json = False,
) -> None:
    """CPU forward pass: milliseconds beside transformers, and the ratio."""
    from litebert.bench.forward import bench_forward

    found = bench_forward(model, repeats, say=progress)
    if as_json:
        print_json(found)
        return
    rows = [
        [
            row["shape"],
            f"{row['transformers_ms']:.1f}",
            f"{row['litebert_ms']:.1f}",
            f"{row['ratio']:.2f}",
            f"{row['litebert_gflops']:.0f}",
            f"{row['largest_difference']:.1e}",
        ]
        for row in found["rows"]
    ]
    columns = ["(batch, length)", f"{found['peer']}, ms", "litebert, ms", "ratio", "litebert GFLOP/s", "difference"]
    print_table(f"{model}, float32, {found['threads']} threads, torch {found['torch']}", columns, rows)
    typer.echo(f"a plain float32 matrix product here: {found['matmul_gflops']:.0f} GFLOP/s")


@app.command()
def memory(
    fit: Annotated[str, typer.Option(help="The card's memory, as for `litebert info --fit`.")] = "12GiB",
    as_json: Json = False,
) -> None:
    """GPU memory of a training step: what `info --fit` estimates beside what is allocated."""
    from litebert.bench.memory import bench_memory
    from litebert.report.memory import parse_bytes

    found = bench_memory(parse_bytes(fit), say=progress)
    if as_json:
        print_json(found)
        return
    rows = [
        [
            row["model"],
            str(row["length"]),
            str(row["batch"]),
            size(row["estimate_bytes"]),
            size(row["peak_bytes"]),
            f"{row['ratio']:.3f}",
        ]
        for row in found["rows"]
    ]
    print_table(
        f"{found['device']}, torch {found['torch']}", ["model", "length", "batch", "estimate", "peak", "ratio"], rows
    )
    typer.echo(f"outside PyTorch's allocator: {size(found['outside_allocator_bytes'])}")


@app.command()
def tokenize(
    tokenizer: Annotated[Path, typer.Argument(help="A tokenizer's file or folder.")],
    inputs: Annotated[list[Path], typer.Argument(metavar="INPUT…", help="Text to measure on: .txt or .jsonl.")],
    texts: Annotated[int, typer.Option(help="How many paragraphs, from the start.", min=1)] = 10_000,
    repeats: Annotated[int, typer.Option(help="Rounds.", min=1)] = 3,
    as_json: Json = False,
) -> None:
    """Text to ids on one core: megabytes a second beside sentencepiece and transformers, and whose ids agree."""
    from litebert.bench.tokenize import bench_tokenize
    from litebert.cli.text import read_texts

    found = bench_tokenize(tokenizer, read_texts(inputs), texts, repeats, say=progress)
    if as_json:
        print_json(found)
        return
    rows = [
        [
            row["way"],
            f"{row['mb_per_second']:.1f}",
            f"{row['time_against_first']:.2f}",
            f"{row['texts_with_other_ids'] * found['texts']:.0f}",
        ]
        for row in found["rows"]
    ]
    title = f"{found['kind']}, {found['texts']:,} paragraphs, {found['bytes'] / 1e6:.1f} MB, one core"
    print_table(title, ["way", "MB/s", "time, first = 1", "texts with other ids"], rows)
    if "note" in found:
        typer.echo(found["note"])
