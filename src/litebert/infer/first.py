"""Texts are rounded to 8 bits in steps of one size, and their first piece stands apart: all others look at it, and its
numbers are far larger or smaller than theirs. It is given steps of its own: its row is multiplied by a factor before a
product and divided by it after. The factors are those of the weights, measured once, on pieces drawn at random.
"""

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from litebert.model.encoder import Encoder
from litebert.model.layers import FeedForward
from litebert.text.tokenizer import Tokenizer

MOST = 16.0  # no factor is larger, nor smaller than its inverse
ALIKE = 1.25  # a factor nearer to one is left out
TEXTS, PIECES = 8, 32  # to measure on
Ends = tuple[int, int]  # the pieces that every text begins and ends with


@dataclass(frozen=True)
class Factors:
    """For each attention: what goes into its first product. For each feed-forward: what goes into its second."""

    attention: tuple[float, ...]
    ffn: tuple[float, ...]


def ends_of(tokenizer: Tokenizer | None) -> Ends | None:
    found = None if tokenizer is None else (tokenizer.roles["cls"], tokenizer.roles["sep"])
    return None if found is None or None in found else cast(Ends, found)


@torch.no_grad()
def factors(encoder: Encoder, ends: Ends | None) -> Factors:
    """`ends`: if not known, all factors are one."""
    trunk = encoder.trunk
    heard: tuple[list[list[float]], ...] = tuple([[] for _ in each] for each in (trunk.attention, trunk.ffn))
    if ends is not None and max(ends) < encoder.config.vocab_size:
        before = encoder.training
        encoder.eval()
        device, most = encoder.embeddings.words.weight.device, min(PIECES, encoder.config.positions)
        random = torch.Generator().manual_seed(0)
        ids = torch.randint(encoder.config.vocab_size, (TEXTS, most), generator=random).to(device)
        ids[:, 0], ids[:, -1] = ends
        x, mask = encoder.embed(ids, None, None, None)
        for a, f in trunk.plan:
            heard[0][a].append(stretch(x))
            x = trunk.attention[a](x, mask)
            ffn = trunk.ffn[f]
            assert isinstance(ffn, FeedForward)
            heard[1][f].append(stretch(ffn.activation(ffn.up(x))))
            x = ffn(x)
        encoder.train(before)
    return Factors(*(tuple(map(middle, each)) for each in heard))


def stretch(x: Tensor) -> float:
    """What makes the first piece's numbers, of (texts, pieces, numbers), reach as far as all others'."""
    first, others = x[:, 0].float(), x[:, 1:].float()
    if not others.numel():
        return 1.0
    spans = [float(part.max().clamp(min=0) - part.min().clamp(max=0)) for part in (first, others)]
    return min(max(spans[1] / spans[0], 1 / MOST), MOST) if min(spans) > 0 else 1.0


def middle(found: list[float]) -> float:
    """Of all the times a layer runs; one where it is not worth the work."""
    factor = math.exp(sum(map(math.log, found)) / len(found)) if found else 1.0
    return factor if max(factor, 1 / factor) > ALIKE else 1.0
