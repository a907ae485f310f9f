"""A text with masks -> what stands there, by the masked-LM head."""

from dataclasses import dataclass
from typing import Protocol

import torch

from litebert.config import UserError
from litebert.model.heads import Network
from litebert.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Guess:
    """A piece that may stand in a mask's place."""

    piece: str
    text: str  # as it reads: without the mark of a word's start
    probability: float


class Filler(Protocol):
    network: Network
    tokenizer: Tokenizer | None


def fill(model: Filler, text: str, top: int, passes: int | None = None) -> list[list[Guess]]:
    network, tokenizer = model.network, model.tokenizer
    if "mlm" not in network.heads:
        raise UserError("this model has no masked-LM head, so it cannot fill masks")
    if tokenizer is None:
        raise UserError("this model has no tokenizer beside it; put spiece.model, vocab.txt or tokenizer.json there")
    mask = tokenizer.piece(tokenizer.mask_id)
    ids, types = _encode(tokenizer, text)
    places = [at for at, index in enumerate(ids) if index == tokenizer.mask_id]
    if not places:
        raise UserError(f"nothing to fill: write {mask} where a word is missing")
    if not 1 <= top <= len(tokenizer):
        raise UserError(f"top = {top} must be at least 1 and at most the tokenizer's {len(tokenizer)} pieces")
    kinds = torch.tensor([types]) if network.config.token_types > 1 else None
    network.eval()
    with torch.inference_mode():
        states = network.encoder(torch.tensor([ids]), token_type_ids=kinds, passes=passes)
        table = network.encoder.embeddings.words.weight
        logits = network.heads["mlm"](states, table, torch.tensor(places)).float()
        logits[:, [*tokenizer.special_ids, *range(len(tokenizer), logits.shape[1])]] = float("-inf")  # no words
        best = logits.softmax(-1).topk(top)
    return [
        [
            Guess(tokenizer.piece(index), tokenizer.decode([index]).strip(), chance)
            for chance, index in zip(chances, indices, strict=True)
        ]
        for chances, indices in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]


def _encode(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[int]]:
    """Ids and types. What touches a mask, as a full stop does, goes on with its word: no mark of a start between."""
    encoded = tokenizer.encode(text)
    ids, types = [], []
    for at, index in enumerate(encoded.input_ids):
        end = encoded.offsets[at - 1][1]
        touches = at > 0 and encoded.input_ids[at - 1] == tokenizer.mask_id and not text[end : end + 1].isspace()
        if not (touches and tokenizer.piece(index) == "▁"):
            ids.append(index)
            types.append(encoded.token_type_ids[at])
    return ids, types
