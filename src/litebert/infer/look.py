"""A model and one row of pieces -> what happens inside it: the states of every layer, who looks at whom, and how far
each layer moves a state. For pictures; the server's page and `litebert plot` draw the same numbers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from litebert.config import UserError
from litebert.model.encoder import Trunk
from litebert.model.packing import Mask
from litebert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from litebert.infer.model import Model


@dataclass(frozen=True)
class Row:
    """One sequence as the model takes it."""

    input_ids: list[int]
    token_type_ids: list[int]
    lost: int = 0  # pieces that did not fit


@dataclass(frozen=True)
class Inside:
    """What a row becomes on its way."""

    trunk: Trunk
    mask: Mask
    passes: int | None
    states: list[Tensor]  # depth + 1 of (1, S, H): what goes into the first layer, then what comes out of each

    @property
    def depth(self) -> int:
        return len(self.states) - 1

    def maps(self, layer: int) -> Tensor:
        """Who looks at whom in a layer, counted from 1: (A, S, S), a row of which adds up to 1."""
        if not 1 <= layer <= self.depth:
            raise UserError(f"layer = {layer} must be at least 1 and at most {self.depth}, the depth of this answer")
        attention, _ = self.trunk.walk(self.passes)[layer - 1]
        maps: Tensor = self.trunk.attention[attention].maps(self.states[layer - 1], self.mask)  # type: ignore[operator]
        return maps[0]


@dataclass(frozen=True)
class Moves:
    """How far each layer moves a state, summed over pieces: float64, (depth,) but for the lengths."""

    pieces: int
    distance: Tensor  # L2, between what goes into a layer and what comes out
    cosine: Tensor  # between the same two
    degrees: Tensor  # the angle between them
    length: Tensor  # (depth + 1,) L2 of the states themselves, the first being what goes into the first layer

    def __add__(self, other: "Moves") -> "Moves":
        return Moves(
            self.pieces + other.pieces,
            self.distance + other.distance,
            self.cosine + other.cosine,
            self.degrees + other.degrees,
            self.length + other.length,
        )


def tokenizer_of(model: "Model") -> Tokenizer:
    if model.tokenizer is None:
        raise UserError("this model has no tokenizer beside it; put spiece.model, vocab.txt or tokenizer.json there")
    return model.tokenizer


def read_row(model: "Model", text: str, most: int) -> Row:
    """A text with its specials, cut to so many pieces, or to what the model takes."""
    tokenizer, most = tokenizer_of(model), min(most, model.config.positions)
    found = tokenizer.encode(text)
    lost = max(0, len(found.input_ids) - most)
    found = tokenizer.encode(text, max_length=most) if lost else found
    return Row(found.input_ids, found.token_type_ids, lost)


@torch.no_grad()
def inside(model: "Model", row: Row, passes: int | None = None) -> Inside:
    encoder = model.encoder.eval()
    device = encoder.embeddings.words.weight.device
    ids, types = (torch.tensor([each], device=device) for each in (row.input_ids, row.token_type_ids))
    x, mask = encoder.embed(ids, None, types if model.config.token_types > 1 else None, None)
    return Inside(encoder.trunk, mask, passes, encoder.trunk.states(x, mask, passes))


def moves(states: list[Tensor]) -> Moves:
    """Of every piece of a row; the states of all layers as `Inside` has them.

    >>> still = torch.tensor([[[3.0, 4.0]]])
    >>> found = moves([still, still, torch.tensor([[[-4.0, 3.0]]])])
    >>> [round(value, 4) for value in found.distance.tolist()], found.cosine.tolist(), found.length.tolist()
    ([0.0, 7.0711], [1.0, 0.0], [5.0, 5.0, 5.0])
    """
    whole = torch.cat(states).double()  # (depth + 1, S, H)
    before, after = whole[:-1], whole[1:]
    cosine = torch.cosine_similarity(before, after, dim=-1).clamp(-1, 1)  # (depth, S)
    distance = (after - before).norm(dim=-1)
    angle = torch.rad2deg(torch.arccos(cosine))
    return Moves(whole.shape[1], distance.sum(1), cosine.sum(1), angle.sum(1), whole.norm(dim=-1).sum(1))
