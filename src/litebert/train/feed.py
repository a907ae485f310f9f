"""A batch of the corpus -> what the network takes: one packed row of its real pieces, on the device.

Full examples come first, so that attention can treat them as one dense batch. Nothing here waits for the device.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from litebert.config import ModelConfig
from litebert.corpus.examples import Batch
from litebert.model.memory import CONTEXT, largest_batch
from litebert.model.packing import Boundaries, to_device

ALIGN = 64  # on a GPU a row's pieces come in multiples of this, and full examples in multiples of EIGHT:
EIGHT = 8  # the attention library plans anew for every number of sequences it has not seen


@dataclass(frozen=True)
class Micro:
    """As many examples as go through the network at once."""

    input_ids: Tensor  # (T,)
    token_type_ids: Tensor  # (T,)
    boundaries: Boundaries
    positions: Tensor  # (M,) of the predicted pieces in the row
    labels: Tensor  # (M,)
    pair_labels: Tensor | None  # (B,)
    owners: Tensor  # (M,) which example each predicted piece belongs to
    examples: int
    pieces: int  # real ones
    squares: int  # sum of the squared lengths, for counting FLOPs

    @property
    def masked(self) -> int:
        return len(self.labels)


def split(batch: Batch, size: int) -> list[Batch]:
    """A batch in parts of at most so many examples."""
    count, width = batch.input_ids.shape
    if count <= size:
        return [batch]
    parts = []
    for first in range(0, count, size):
        rows = slice(first, first + size)
        here = (batch.positions >= first * width) & (batch.positions < (first + size) * width)
        parts.append(
            Batch(
                batch.input_ids[rows],
                batch.token_type_ids[rows],
                batch.lengths[rows],
                batch.positions[here] - first * width,
                batch.labels[here],
                None if batch.pair_labels is None else batch.pair_labels[rows],
                batch.spans,
            )
        )
    return parts


def packed(batch: Batch, device: torch.device, longest: int, pad_id: int) -> Micro:
    """Packed, full examples first, and moved without waiting."""
    lengths, width = batch.lengths, batch.input_ids.shape[1]
    order = np.argsort(lengths != longest, kind="stable")
    sizes = lengths[order]
    starts = np.empty(len(lengths), dtype=np.int64)
    starts[order] = np.cumsum(sizes) - sizes
    real = np.arange(width) < sizes[:, None]
    ids, types = batch.input_ids[order][real], batch.token_type_ids[order][real]
    rows, columns = np.divmod(batch.positions, width)
    full = int((lengths == longest).sum())
    every = sizes.tolist()
    if device.type == "cuda":
        full -= full % EIGHT
        filler = ALIGN - len(ids) % ALIGN
        ids = np.append(ids, np.full(filler, pad_id, ids.dtype))
        types = np.append(types, np.zeros(filler, types.dtype))
        fills, left = divmod(filler, longest)
        every += [longest] * fills + [left] * (left > 0)

    def move(array: np.ndarray) -> Tensor:
        return to_device(torch.from_numpy(np.ascontiguousarray(array)), device)

    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return Micro(
        input_ids=move(ids),
        token_type_ids=move(types),
        boundaries=Boundaries.of(every, device, longest, full),
        positions=move(starts[rows] + columns),
        labels=move(batch.labels.astype(np.int64)),
        pair_labels=None if batch.pair_labels is None else move(batch.pair_labels[order]),
        owners=move(place[rows]),
        examples=len(lengths),
        pieces=int(lengths.sum()),
        squares=int((lengths.astype(np.int64) ** 2).sum()),
    )


def fitting(config: ModelConfig, length: int, device: torch.device) -> int:
    """How many examples of this length should go through at once: what fits, and no more than keeps a device busy."""
    if device.type != "cuda":
        return max(1, (1 << 14) // length)
    memory = torch.cuda.get_device_properties(device).total_memory
    fit = largest_batch(config, length, int(0.9 * memory) - CONTEXT)
    return max(1, min(fit, (1 << 17) // length))
