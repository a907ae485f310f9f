"""`litebert fill`: ask a model."""

from dataclasses import asdict
from typing import Annotated

import typer

from litebert.cli.show import Json, Precise, print_json, print_table


def fill(
    text: Annotated[str, typer.Argument(help="A text with [MASK] (or the model's own mask) where a word is missing.")],
    model: Annotated[
        str, typer.Option("--model", help="A model's or run's folder, or a hub name; default: the one that ships.")
    ] = "litebert-base",
    top: Annotated[int, typer.Option(help="Guesses a mask.", min=1)] = 5,
    passes: Annotated[int | None, typer.Option(help="How often a shared layer runs; default: as trained.")] = None,
    precision: Precise = None,
    as_json: Json = False,
) -> None:
    """What may stand where the masks are."""
    from litebert.infer.model import load

    loaded = load(model, precision=precision)
    mask = loaded.tokenizer.piece(loaded.tokenizer.mask_id) if loaded.tokenizer is not None else "[MASK]"
    guesses = loaded.fill(text.replace("[MASK]", mask), top, passes)
    if as_json:
        print_json({"text": text, "masks": [[asdict(guess) for guess in each] for each in guesses]})
        return
    typer.echo(text)
    for number, each in enumerate(guesses, 1):
        rows = [[guess.text or guess.piece, f"{100 * guess.probability:.1f} %"] for guess in each]
        print_table(f"mask {number}" if len(guesses) > 1 else "", ["guess", "probability"], rows)
