"""`litebert tokenizer train`: texts -> a tokenizer's folder."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from litebert.cli.show import Json, print_json, print_table, progress

app = typer.Typer(help="Train a tokenizer.", no_args_is_help=True)

KINDS = {"unigram": "ALBERT's", "wordpiece": "BERT's and DistilBERT's", "bpe": "RoBERTa's, byte-level"}


@app.callback()
def tokenizer() -> None:
    """Train a tokenizer."""


@app.command()
def train(
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT…", help="Files, folders, patterns or URLs of text.")],
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
    text: Annotated[str, typer.Option(help="The column that holds the text, in JSONL, CSV and Parquet.")] = "text",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Count broken rows instead of stopping.")] = False,
    as_json: Json = False,
) -> None:
    """Train a tokenizer on text and write its folder, which transformers loads too."""
    from dataclasses import asdict

    from litebert.corpus.read import Bad, find_sources, read_documents
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
    bad = Bad(skip=skip_bad)
    documents = read_documents(find_sources(inputs, leave=[to]), text, bad)
    trained, counts = train_tokenizer(documents, settings, say=progress)
    trained.save(to)
    normalise = settings.normalise
    found: dict[str, Any] = {
        "folder": str(to),
        "kind": kind,
        "vocab_size": len(trained),
        "cased": not normalise.lower,
        "keep_accents": normalise.keep_accents,
    } | asdict(counts)
    found |= {f"bad: {kind}": count for kind, count in bad.counts.items()}
    if as_json:
        print_json(found)
        return
    print_table("trained", ["", "value"], [[key.replace("_", " "), _shown(value)] for key, value in found.items()])


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
