"""A `Model` -> a folder that `transformers` loads, tokenizer included."""

from pathlib import Path

from litebert.infer.model import Model
from litebert.model.weights import export_network


def export_hf(model: Model, folder: str | Path) -> tuple[str, ...]:
    """Writes the folder and returns what had to be said another way, a line each."""
    notes = export_network(model.network, Path(folder), model.stored)
    if model.tokenizer is not None:
        model.tokenizer.save(Path(folder))
    return notes
