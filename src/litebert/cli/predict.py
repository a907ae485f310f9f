"""`litebert predict`."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from litebert.cli.show import Bound, FromPasses, Json, Precise, print_json


def predict(
    model: Annotated[str, typer.Argument(help="A model that was taught a task: a folder, a run, a hub name.")],
    file: Annotated[Path, typer.Argument(help="What to answer: CSV, TSV, JSONL, Parquet, CoNLL, or a benchmark's.")],
    to: Annotated[Path, typer.Option("--to", help="Where to: .csv, .tsv, .jsonl, or .json as SQuAD has it.")],
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
    """Answer every row of a file. Killed, the same command goes on where it stopped."""
    from litebert.infer.model import load
    from litebert.infer.predict import ask
    from litebert.infer.settle import settle_of
    from litebert.infer.stream import format_of, predict_file
    from litebert.tasks.read import read_unlabelled
    from litebert.train.processes import pick_device

    chosen = format_of(to, form)
    here, stop = pick_device(device), settle_of(settle, from_passes)
    names = [model, *(also or [])]
    models = ask(names, [load(name, precision=precision) for name in names], here, passes, stop)
    task = replace(models[0].task, texts=tuple(text or models[0].task.texts))
    size = file.stat().st_size if file.is_file() else 0
    signature = {"models": names, "file": str(file), "bytes": size, "format": chosen, "texts": list(task.texts)}
    found = predict_file(
        models,
        read_unlabelled(task, file, split),
        to,
        chosen,
        signature
        | {"split": split, "passes": passes, "precision": precision, "settle": asdict(stop) if stop else None},
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
