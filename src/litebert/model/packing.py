"""Batches as the trunk takes them: who may look at whom, and a padded batch as one row of its real pieces."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from litebert.config import UserError


@dataclass(frozen=True)
class Boundaries:
    """Where the sequences of one packed row begin and end."""

    lengths: tuple[int, ...]  # on the host: loops and kernel launches need them without waiting for the device
    offsets: Tensor  # (N + 1,) int32: 0, then the running sum of the lengths
    causal: bool = False

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device | str | None = None) -> "Boundaries":
        if not lengths or min(lengths) < 1:
            raise UserError(f"a packed row needs sequences of at least one piece each, not lengths {list(lengths)[:8]}")
        offsets = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
        return cls(tuple(lengths), offsets)

    def positions(self) -> Tensor:
        """0, 1, 2, … anew in each sequence."""
        starts = self.offsets[:-1].long()
        repeats = torch.tensor(self.lengths, device=starts.device)
        return torch.arange(sum(self.lengths), device=starts.device) - starts.repeat_interleave(repeats)


Mask = Tensor | Boundaries | None  # (B or 1, 1, 1 or S, S) bool, True where a piece may look; a packed row; all see all


def visible(input_ids: Tensor, attention_mask: Tensor | None, boundaries: Boundaries | None, causal: bool) -> Mask:
    """Who may look at whom, after checking that what was given goes together."""
    if boundaries is not None:
        if attention_mask is not None or input_ids.shape != (sum(boundaries.lengths),):
            raise UserError("boundaries go with one packed row of pieces, without an attention_mask")
        return replace(boundaries, causal=causal)
    if input_ids.dim() != 2:
        raise UserError(
            f"input_ids of shape {tuple(input_ids.shape)}: give (batch, length), or (pieces,) and boundaries"
        )
    triangle = causal_mask(input_ids.shape[1], input_ids.device) if causal else None  # (S, S)
    if attention_mask is None:
        return triangle
    if attention_mask.shape != input_ids.shape:
        raise UserError(f"attention_mask {tuple(attention_mask.shape)} is not of input_ids' {tuple(input_ids.shape)}")
    seen = attention_mask.bool()[:, None, None, :]  # (B, 1, 1, S)
    return seen if triangle is None else seen & triangle


def causal_mask(length: int, device: torch.device) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def pack(input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Boundaries]:
    """A padded batch as one row of its real pieces. Token types and labels pack by `tensor[attention_mask.bool()]`."""
    if attention_mask.shape != input_ids.shape:
        raise UserError(f"attention_mask {tuple(attention_mask.shape)} is not of input_ids' {tuple(input_ids.shape)}")
    real = attention_mask.bool()
    lengths = real.sum(1).tolist()
    if not all(lengths):
        raise UserError(f"row {lengths.index(0)} of the batch is nothing but padding")
    return input_ids[real], Boundaries.of(lengths, input_ids.device)


def unpack(packed: Tensor, attention_mask: Tensor) -> Tensor:
    """The reverse of `pack`: zeros where the padding was."""
    wide = packed.new_zeros(*attention_mask.shape, *packed.shape[1:])
    return wide.index_put((attention_mask.bool(),), packed)


def first_piece(states: Tensor, boundaries: Boundaries | None = None) -> Tensor:
    return states[:, 0] if boundaries is None else states[boundaries.offsets[:-1].long()]  # (B, H)
