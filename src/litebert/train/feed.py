"""Packed examples -> what the network takes, on the device, in one copy that nobody waits for."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from litebert.config import ModelConfig
from litebert.corpus.pack import ALIGNED, Packed
from litebert.model.memory import CONTEXT, largest_batch
from litebert.model.packing import Boundaries, to_device


@dataclass(frozen=True)
class Micro:
    """The same on the device: views of the block."""

    block: Tensor
    input_ids: Tensor  # (T,)
    token_type_ids: Tensor  # (T,)
    boundaries: Boundaries
    positions: Tensor  # (M,) of the predicted pieces in the row
    labels: Tensor  # (M,) what they are; IGNORED where a place only fills
    owners: Tensor  # (M,) which example each predicted piece belongs to
    pair_labels: Tensor | None  # (B,)
    packed: Packed
    depth: int = 0  # passes that are asked for beside, or instead of, the network's own; 0: only those
    key: str = ""  # which part of which batch it is


def to_micro(packed: Packed, device: torch.device) -> Micro:
    block = to_device(torch.from_numpy(packed.block), device)
    ends = np.cumsum([size + -size % ALIGNED for size in packed.sizes])
    parts = [block[int(end) - (size + -size % ALIGNED) :][:size] for end, size in zip(ends, packed.sizes, strict=True)]
    ids, types, places, offsets, tail, positions, labels, owners, pairs = parts
    rows = Boundaries(offsets, tail, places, packed.longest)
    return Micro(block, ids, types, rows, positions, labels, owners, pairs if len(pairs) else None, packed)


def fitting(config: ModelConfig, length: int, device: torch.device) -> int:
    """How many examples of this length should go through at once: what fits, and no more than keeps a device busy."""
    if device.type != "cuda":
        return max(1, (1 << 14) // length)
    memory = torch.cuda.get_device_properties(device).total_memory
    fit = largest_batch(config, length, int(0.9 * memory) - CONTEXT)
    return max(1, min(fit, (1 << 17) // length))
