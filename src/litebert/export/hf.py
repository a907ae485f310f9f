"""A `Model` -> a folder that `transformers` loads, tokenizer included."""

from pathlib import Path

import torch

from litebert.infer.batch import restated
from litebert.infer.model import Model
from litebert.model.weights import export_network


def export_hf(model: Model, folder: str | Path) -> tuple[str, ...]:
    """Writes the folder and returns what had to be said another way, a line each."""
    network = model.network if model.taught is None else restated(model.network, model.taught.task)
    fine = network is not model.network and model.stored != torch.float32
    notes = export_network(network, Path(folder), torch.float32 if fine else model.stored)
    if fine:
        kind = str(model.stored).removeprefix("torch.")
        notes += (f"in float32, not {kind}: the head says numbers as they are, which {kind} would round",)
    if model.tokenizer is not None:
        model.tokenizer.save(Path(folder))
    return notes
