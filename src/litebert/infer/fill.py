"""Texts with masks -> what stands there, by the masked-LM head."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from litebert.config import UserError
from litebert.model.heads import Network, widened
from litebert.model.packing import Boundaries
from litebert.text.tokenizer import Tokenizer

TOGETHER = 1 << 12  # pieces in one packed row
AT_ONCE = 256  # masks whose probabilities of every piece are held together


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
    return fill_many(model, [text], top, passes)[0]


def fill_many(model: Filler, texts: Sequence[str], top: int, passes: int | None = None) -> list[list[list[Guess]]]:
    """For each text, for each of its masks, the likeliest pieces. Texts of like length go through together."""
    network, tokenizer = model.network, model.tokenizer
    if "mlm" not in network.heads:
        raise UserError("this model has no masked-LM head, so it cannot fill masks")
    if tokenizer is None:
        raise UserError("this model has no tokenizer beside it; put spiece.model, vocab.txt or tokenizer.json there")
    rows = [_encode(tokenizer, text) for text in texts]
    for number, (ids, _) in enumerate(rows):
        if tokenizer.mask_id not in ids:
            mask, where = tokenizer.piece(tokenizer.mask_id), f" in text {number}" if len(rows) > 1 else ""
            raise UserError(f"nothing to fill{where}: write {mask} where a word is missing")
    if not 1 <= top <= len(tokenizer):
        raise UserError(f"top = {top} must be at least 1 and at most the tokenizer's {len(tokenizer)} pieces")
    network.eval()
    found: list[list[list[Guess]]] = [[] for _ in texts]
    some: list[int] = []
    for number in sorted(range(len(rows)), key=lambda number: len(rows[number][0])):
        if some and sum(len(rows[each][0]) for each in some) + len(rows[number][0]) > TOGETHER:
            _fill_row(network, tokenizer, rows, some, top, passes, found)
            some = []
        some.append(number)
    if some:
        _fill_row(network, tokenizer, rows, some, top, passes, found)
    return found


@torch.inference_mode()
def _fill_row(
    network: Network,
    tokenizer: Tokenizer,
    rows: Sequence[tuple[list[int], list[int]]],
    some: Sequence[int],  # numbers of the texts that go through as one packed row
    top: int,
    passes: int | None,
    found: list[list[list[Guess]]],
) -> None:
    table = network.encoder.embeddings.words.weight
    ids, types = (torch.tensor([each for number in some for each in rows[number][part]]) for part in (0, 1))
    kinds = types.to(table.device) if network.config.token_types > 1 else None
    boundaries = Boundaries.of([len(rows[number][0]) for number in some], table.device)
    states = network.encoder(ids.to(table.device), token_type_ids=kinds, boundaries=boundaries, passes=passes)  # (T, H)
    places = (ids == tokenizer.mask_id).nonzero()[:, 0]
    owners = [number for number in some for index in rows[number][0] if index == tokenizer.mask_id]
    guesses: list[list[Guess]] = []
    for here in torch.split(places.to(table.device), AT_ONCE):
        logits = widened(network.heads["mlm"](states, table, here))  # (N, V)
        logits[:, [*tokenizer.special_ids, *range(len(tokenizer), logits.shape[1])]] = float("-inf")  # no words
        best = logits.softmax(-1).topk(top)
        guesses += [
            [
                Guess(tokenizer.piece(index), tokenizer.decode([index]).strip(), chance)
                for chance, index in zip(chances, indices, strict=True)
            ]
            for chances, indices in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]
    for number, guess in zip(owners, guesses, strict=True):
        found[number].append(guess)


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
