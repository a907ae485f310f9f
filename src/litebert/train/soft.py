"""Soft targets: how far a student's probabilities of all pieces are from its teacher's, KL(teacher ‖ student).

A vocabulary is wide: the probabilities of a batch would be gigabytes, several times over. So they are made for some
pieces at a time, and since the slope of this loss is known (the student's shares less the teacher's), it is made there
and then: no piece's probabilities are kept for the backward pass, only the gradients, and nothing is computed twice.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from litebert.model.heads import MaskedLM, Network, widened

AT_ONCE = 4096  # pieces whose probabilities over the vocabulary are in memory together
Compare = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]


def compared(mine: Tensor, theirs: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Logits (N, V) -> the divergence, added over the pieces, times the temperature's square; its slope by `mine`."""
    guess, target = (F.log_softmax(widened(each) / temperature, -1) for each in (mine, theirs))
    shares = target.exp()
    loss = (shares * (target - guess)).sum() * temperature**2
    return loss, ((guess.exp() - shares) * temperature).to(mine.dtype)


class Followed(torch.autograd.Function):
    """(N, E) states of either side and their word tables -> the loss, whose gradients wait for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, mine: Tensor, table: Tensor, bias: Tensor, theirs: tuple[Tensor, ...], heat: float, compare: Compare
    ) -> Tensor:
        wide = torch.promote_types(table.dtype, torch.float32)
        total, d_mine = mine.new_zeros((), dtype=wide), torch.empty_like(mine)
        d_table, d_bias = (torch.zeros_like(each, dtype=wide) for each in (table, bias))
        states, *weights = theirs
        for first in range(0, len(mine), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            loss, slope = compare(F.linear(mine[some], table, bias), F.linear(states[some], *weights), heat)
            total += loss
            torch.mm(slope, table, out=d_mine[some])
            d_table += slope.T @ mine[some]
            d_bias += slope.sum(0, dtype=wide)
        ctx.save_for_backward(d_mine, d_table, d_bias)
        ctx.types = mine.dtype, table.dtype, bias.dtype
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        """What the loss weighs is one over thousands of pieces: it meets them in float32 or wider."""
        found = [
            (widened(each) * slopes[0]).to(dtype) for each, dtype in zip(ctx.saved_tensors, ctx.types, strict=True)
        ]
        return *found, None, None, None


def soft_targets(
    student: Network,
    teacher: Network,
    mine: Tensor,
    theirs: Tensor,
    where: Tensor,
    temperature: float,
    compare: Compare = compared,
) -> Tensor:
    """KL(teacher ‖ student) of the pieces' probabilities at a temperature, times its square, added over the pieces."""
    with torch.no_grad():
        taught = _before_words(teacher, theirs[where])
    mine_here = _before_words(student, mine[where])
    return Followed.apply(*mine_here, taught, temperature, compare)  # type: ignore[no-untyped-call,no-any-return]


def _before_words(network: Network, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What the logits are the product of: states as wide as the embeddings, the word table and its bias."""
    head = network.heads["mlm"]
    assert isinstance(head, MaskedLM)
    x = head.narrowed(states)
    return x, network.encoder.embeddings.words.weight.to(x.dtype), head.bias.to(x.dtype)
