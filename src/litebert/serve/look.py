"""One text -> what the model makes of it, as numbers to draw: pieces, who looks at whom, how alike the layers are."""

from typing import Any

import torch

from litebert.config import UserError
from litebert.infer.look import inside, read_row, tokenizer_of
from litebert.infer.model import Model

LONGEST = 64  # pieces of a text that is drawn: more cannot be read


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
    tokenizer, heads = tokenizer_of(model), model.config.heads
    if head is not None and not 1 <= head <= heads:
        raise UserError(f"head = {head} must be at least 1 and at most {heads}, or left out for their mean")
    row = read_row(model, text, LONGEST)
    found = inside(model, row, passes)
    layer = found.depth if layer is None else layer
    maps = found.maps(layer)
    seen = maps.mean(0) if head is None else maps[head - 1]  # (S, S)
    units = torch.nn.functional.normalize(torch.cat(found.states).float(), dim=-1)  # (depth + 1, S, H)
    alike = torch.einsum("ish,jsh->ij", units, units) / units.shape[1]
    return {
        "pieces": [tokenizer.piece(index) for index in row.input_ids],
        "lost": row.lost,
        "layer": layer,
        "layers": found.depth,
        "head": head,
        "heads": heads,
        "attention": rounded(seen),
        "similarity": rounded(alike),
    }


def rounded(table: torch.Tensor) -> list[list[float]]:
    return [[round(value, 4) for value in row] for row in table.tolist()]
