"""`litebert tokenizer train`: texts -> a tokenizer's folder."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from litebert.cli.show import Json, print_json, print_table, progress
from litebert.config import UserError

app = typer.Typer(help="Train a tokenizer.", no_args_is_help=True)

KINDS = {"unigram": "ALBERT's", "wordpiece": "BERT's and DistilBERT's", "bpe": "RoBERTa's, byte-level"}
SUFFIXES = (".txt", ".jsonl", ".jsonl.xz", ".jsonl.gz")


@app.callback()
def tokenizer() -> None:
    """Train a tokenizer."""


@app.command()
def train(
    inputs: Annotated[list[Path], typer.Argument(metavar="INPUT…", help=f"Files or folders: {', '.join(SUFFIXES)}.")],
    to: Annotated[Path, typer.Option("--to", help="The folder to write.")],
    kind: Annotated[
        Literal["unigram", "wordpiece", "bpe"],
        typer.Option(help="; ".join(f"{name}: {whose}" for name, whose in KINDS.items()) + "."),
    ] = "unigram",
    vocab_size: Annotated[int, typer.Option(help="How many pieces, specials included.")] = 30000,
    cased: Annotated[
        bool | None, typer.Option("--cased/--uncased", help="Keep capitals. Else lower-cased, but for bpe.")
    ] = None,
    keep_accents: Annotated[
        bool | None, typer.Option("--keep-accents/--strip-accents", help="Keep accents. Else dropped, but for bpe.")
    ] = None,
    max_sentences: Annotated[int, typer.Option(help="Train on a sample of at most so many sentences.")] = 10_000_000,
    max_bytes: Annotated[
        int, typer.Option(help="And of at most so many bytes; unigram takes 25 bytes of memory each.")
    ] = 140_000_000,
    seed: Annotated[int, typer.Option(help="Decides the sample.")] = 0,
    as_json: Json = False,
) -> None:
    """Train a tokenizer on text and write its folder, which transformers loads too."""
    from dataclasses import asdict

    from litebert.text.train import TrainSettings, train_tokenizer

    settings = TrainSettings(
        kind=kind,
        vocab_size=vocab_size,
        cased=cased,
        keep_accents=keep_accents,
        max_sentences=max_sentences,
        max_bytes=max_bytes,
        seed=seed,
    )
    trained, counts = train_tokenizer(read_texts(inputs), settings, say=progress)
    trained.save(to)
    normalise = settings.normalise
    found: dict[str, Any] = {
        "folder": str(to),
        "kind": kind,
        "vocab_size": len(trained),
        "cased": not normalise.lower,
        "keep_accents": normalise.keep_accents,
    } | asdict(counts)
    if as_json:
        print_json(found)
        return
    print_table("trained", ["", "value"], [[key.replace("_", " "), _shown(value)] for key, value in found.items()])


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def read_texts(paths: list[Path]) -> Iterator[str]:
    """Documents of plain text (a blank line between them) and of JSONL (`text`), plain, .xz or .gz."""
    import gzip
    import lzma

    files: list[Path] = []
    for path in paths:
        found = sorted(f for f in path.rglob("*") if f.name.endswith(SUFFIXES)) if path.is_dir() else [path]
        if not found or not path.exists():
            what = f"{path} holds no {', '.join(SUFFIXES)}" if path.is_dir() else f"no file {path}"
            raise UserError(f"{what}; give text files or folders of them")
        files += found
    for path in files:
        if not path.name.endswith(SUFFIXES):
            raise UserError(f"{path} is none of {', '.join(SUFFIXES)}")
        opened: Any = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
        row = 1
        try:
            with opened(path, "rt", encoding="utf-8") as lines:
                document = ""
                for line in lines:
                    if path.suffix != ".txt":
                        yield str(json.loads(line)["text"])
                    elif line.strip():
                        document += line
                    elif document:
                        yield document
                        document = ""
                    row += 1
                if document:
                    yield document
        except (OSError, EOFError, lzma.LZMAError, ValueError, KeyError, TypeError) as problem:
            why = (str(problem).splitlines() or [type(problem).__name__])[0]
            raise UserError(f"{path} cannot be read at line {row}: {why}") from None
