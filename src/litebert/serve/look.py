"""One text -> what the model makes of it, as numbers to draw: pieces, who looks at whom, how alike the layers are."""

from typing import Any

import torch

from litebert.config import UserError
from litebert.infer.model import Model
from litebert.text.tokenizer import Tokenizer

LONGEST = 64  # pieces of a text that is drawn: more cannot be read


def tokenizer_of(model: Model) -> Tokenizer:
    if model.tokenizer is None:
        raise UserError("this model has no tokenizer beside it; put spiece.model, vocab.txt or tokenizer.json there")
    return model.tokenizer


def pieces(model: Model, text: str) -> list[dict[str, Any]]:
    """Each piece of a text with its specials, and where in the text it stands."""
    tokenizer = tokenizer_of(model)
    found = tokenizer.encode(text)
    return [
        {"piece": tokenizer.piece(index), "id": index, "start": start, "end": end, "special": special}
        for index, (start, end), special in zip(found.input_ids, found.offsets, found.special_mask, strict=True)
    ]


@torch.inference_mode()
def look(
    model: Model, text: str, layer: int | None = None, head: int | None = None, passes: int | None = None
) -> dict[str, Any]:
    """Attention of one layer (the last, unless another is said) and one head (or the mean of all), and how alike the
    states of any two layers are: the mean cosine of a piece's states, layer 0 being what goes into the first."""
    tokenizer, encoder, config = tokenizer_of(model), model.encoder.eval(), model.config
    walk = encoder.trunk.walk(passes)
    layer = len(walk) if layer is None else layer
    if not 1 <= layer <= len(walk):
        raise UserError(f"layer = {layer} must be at least 1 and at most {len(walk)}, the depth of this answer")
    if head is not None and not 1 <= head <= config.heads:
        raise UserError(f"head = {head} must be at least 1 and at most {config.heads}, or left out for their mean")
    most = min(LONGEST, config.positions)
    encoded = tokenizer.encode(text)
    lost = max(0, len(encoded.input_ids) - most)
    encoded = tokenizer.encode(text, max_length=most) if lost else encoded
    device = encoder.embeddings.words.weight.device
    ids, types = (torch.tensor([row], device=device) for row in (encoded.input_ids, encoded.token_type_ids))
    x, mask = encoder.embed(ids, None, types if config.token_types > 1 else None, None)
    states = encoder.trunk.states(x, mask, passes)  # depth + 1 of (1, S, H)
    maps = encoder.trunk.attention[walk[layer - 1][0]].maps(states[layer - 1], mask)[0]  # type: ignore[operator]
    seen = maps.mean(0) if head is None else maps[head - 1]  # (S, S)
    units = torch.nn.functional.normalize(torch.cat(states).float(), dim=-1)  # (depth + 1, S, H)
    alike = torch.einsum("ish,jsh->ij", units, units) / units.shape[1]
    return {
        "pieces": [tokenizer.piece(index) for index in encoded.input_ids],
        "lost": lost,
        "layer": layer,
        "layers": len(walk),
        "head": head,
        "heads": config.heads,
        "attention": rounded(seen),
        "similarity": rounded(alike),
    }


def rounded(table: torch.Tensor) -> list[list[float]]:
    return [[round(value, 4) for value in row] for row in table.tolist()]
