"""An ONNX file in the place of a network, so that everything that asks a model can ask the file: `--check` does."""

from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from litebert.config import UserError
from litebert.infer.loop import open_session
from litebert.infer.model import Model
from litebert.model.encoder import Encoder
from litebert.model.heads import Beam
from litebert.model.packing import Boundaries

PLACES = ("start", "start_at", "end", "end_at", "no_answer")


def run_by_onnx(model: Model, file: str | Path) -> Model:
    """The model, its answers from the file: each head gives what the file says, and the encoder hands it through."""
    heads = [head.kind for head in model.network.head_configs]
    if len(heads) != 1 or heads[0] in ("mlm", "pair"):
        raise UserError(f"a file is asked through the head of a task, and this model has: {', '.join(heads) or 'none'}")
    network = copy(model.network)
    network._modules = dict(model.network._modules)
    encoder = OnnxEncoder(model.network.encoder, str(file), heads[0])
    network.encoder = encoder  # type: ignore[assignment]
    network.heads = nn.ModuleDict({heads[0]: Said(encoder)})
    network.sentence = lambda states, kind, boundaries=None: states  # type: ignore[method-assign]
    taught = model.taught
    if taught is not None:  # the file says numbers as they are
        taught = replace(taught, task=replace(taught.task, mean=0.0, scale=1.0))
    return Model(network=network, tokenizer=model.tokenizer, stored=model.stored, taught=taught)


class OnnxEncoder(nn.Module):
    """A packed row -> what the file says of its sequences, or of their pieces; for a beam, nothing yet."""

    def __init__(self, encoder: Encoder, file: str, kind: str) -> None:
        super().__init__()
        self.embeddings, self.trunk, self.config, self.kind = encoder.embeddings, encoder.trunk, encoder.config, kind
        self.session = open_session(file)
        self.inputs = {each.name for each in self.session.get_inputs()}
        self.row: dict[str, Any] = {}  # the last one, as the file takes it

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor | None, boundaries: Boundaries, passes: int | None = None
    ) -> Tensor:
        sizes = np.array(boundaries.lengths)
        real = np.arange(boundaries.longest) < sizes[:, None]  # (N, S)
        given = {"attention_mask": real.astype(np.int64), "passes": np.array(passes or self.config.layers)}
        for name, values in (("input_ids", input_ids), ("token_type_ids", token_type_ids)):
            wide = np.full(real.shape, self.config.pad_id if name == "input_ids" else 0, dtype=np.int64)
            if values is not None:
                wide[real] = values.cpu().numpy()
            given[name] = wide
        if passes is not None and "passes" not in self.inputs:
            raise UserError(f"passes = {passes}, and this file always makes {self.config.layers}")
        self.row = given
        if self.kind == "span-beam":
            return torch.zeros(len(input_ids), 1)
        said = self.run([self.kind])[0]
        return torch.from_numpy(said[real] if self.kind in ("tag", "span") else said)

    def run(self, names: list[str], **more: Any) -> list[Any]:
        given = {name: value for name, value in (self.row | more).items() if name in self.inputs}
        found: list[Any] = self.session.run(names, given)
        return found


class Said(nn.Module):
    """A head whose work the file has done."""

    def __init__(self, encoder: OnnxEncoder) -> None:
        super().__init__()
        self.source = [encoder]  # in a list: it is no part of this

    def forward(self, said: Tensor) -> Tensor:
        return said

    def beam(self, wide: Tensor, allowed: Tensor) -> Beam:
        encoder = self.source[0]
        places = np.zeros(encoder.row["input_ids"].shape, dtype=np.int64)
        places[: allowed.shape[0], : allowed.shape[1]] = allowed.cpu().numpy()
        found = dict(zip(PLACES, encoder.run(list(PLACES), allowed=places), strict=True))
        return Beam(**{name: torch.from_numpy(each[: len(wide)]) for name, each in found.items()})
