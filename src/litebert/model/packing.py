"""Batches as the trunk takes them: who may look at whom, and a padded batch as one row of its real pieces."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from litebert.config import UserError


def to_device(tensor: Tensor, device: torch.device | str | None) -> Tensor:
    """Moved without waiting: a copy out of ordinary memory would wait for all that the device has to do."""
    if device is None or torch.device(device).type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


@dataclass(frozen=True)
class Boundaries:
    """Where the sequences of one packed row begin and end. Nothing here waits for the device."""

    offsets: Tensor  # (N + 1,) int32: 0, then the running sum of the lengths
    tail: Tensor  # (M + 1,) int32: the same for those after the full ones at the front
    places: Tensor  # (T,) 0, 1, 2, … anew in each sequence
    longest: int  # pieces of a full sequence; none has more
    causal: bool = False

    @classmethod
    def of(
        cls,
        lengths: Sequence[int],
        device: torch.device | str | None = None,
        longest: int = 0,
        full: int | None = None,
        empty: bool = False,
    ) -> "Boundaries":
        """`longest`: what a full sequence has, if none of these need be one. `full`: how many at the front to treat so,
        if not all that are. `empty`: sequences may hold nothing, but for the last."""
        if not lengths or min(lengths) < (0 if empty else 1):
            raise UserError(f"a packed row needs sequences of at least one piece each, not lengths {list(lengths)[:8]}")
        sizes = np.array(lengths, dtype=np.int64)
        longest = max(longest, int(sizes.max()))
        offsets = np.append(0, sizes.cumsum())
        front = int((sizes == longest).cumprod().sum()) if full is None else full
        places = np.arange(offsets[-1]) - offsets[:-1].repeat(sizes)
        tail = offsets[front:] - offsets[front]
        parts = (offsets.astype(np.int32), tail.astype(np.int32), places)
        here = [to_device(torch.from_numpy(part), device) for part in parts]
        return cls(here[0], here[1], here[2], longest)

    @property
    def lengths(self) -> tuple[int, ...]:
        """On the host: on another device this waits for it."""
        return tuple(self.offsets.diff().tolist())


Mask = Tensor | Boundaries | None  # (B or 1, 1, 1 or S, S) bool, True where a piece may look; a packed row; all see all


def visible(input_ids: Tensor, attention_mask: Tensor | None, boundaries: Boundaries | None, causal: bool) -> Mask:
    """Who may look at whom, after checking that what was given goes together."""
    if boundaries is not None:
        if attention_mask is not None or input_ids.shape != boundaries.places.shape:
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
    """A padded batch as one row of its real pieces, its own memory where all are. Token types and labels pack by
    `tensor[attention_mask.bool()]`."""
    if attention_mask.shape != input_ids.shape:
        raise UserError(f"attention_mask {tuple(attention_mask.shape)} is not of input_ids' {tuple(input_ids.shape)}")
    real = attention_mask.bool()
    lengths = real.sum(1).tolist()
    if not all(lengths):
        raise UserError(f"row {lengths.index(0)} of the batch is nothing but padding")
    row = input_ids.flatten() if sum(lengths) == input_ids.numel() else input_ids[real]
    return row, Boundaries.of(lengths, input_ids.device)


def unpack(packed: Tensor, attention_mask: Tensor) -> Tensor:
    """The reverse of `pack`: zeros where the padding was."""
    wide = packed.new_zeros(*attention_mask.shape, *packed.shape[1:])
    return wide.index_put((attention_mask.bool(),), packed)


def first_piece(states: Tensor, boundaries: Boundaries | None = None) -> Tensor:
    return states[:, 0] if boundaries is None else states[boundaries.offsets[:-1].long()]  # (B, H)
