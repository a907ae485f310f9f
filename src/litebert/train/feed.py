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

IGNORED = -100  # the label of a place that only fills


@dataclass(frozen=True)
class Micro:
    """As many examples as go through the network at once."""

    input_ids: Tensor  # (T,)
    token_type_ids: Tensor  # (T,)
    boundaries: Boundaries
    positions: Tensor  # (M,) of the predicted pieces in the row
    labels: Tensor  # (M,) what they are; IGNORED where a place only fills
    pair_labels: Tensor | None  # (B,)
    owners: Tensor  # (M,) which example each predicted piece belongs to
    examples: int
    pieces: int  # real ones
    masked: int  # likewise
    squares: int  # sum of the squared lengths, for counting FLOPs


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


def packed(batch: Batch, device: torch.device, longest: int, pad_id: int, fill: bool | None = None) -> Micro:
    """Packed, full examples first, and moved without waiting.

    On a GPU (or where `fill` says so) a row is filled up to one of a few sizes: the libraries plan anew, and steps are
    captured anew, for every shape they have not seen. At most one part in 64 is filling.
    """
    fill = device.type == "cuda" if fill is None else fill
    lengths, width, count = batch.lengths, batch.input_ids.shape[1], len(batch.lengths)
    order = np.argsort(lengths != longest, kind="stable")
    sizes = lengths[order]
    starts, place = np.empty((2, count), dtype=np.int64)
    starts[order], place[order] = np.cumsum(sizes) - sizes, np.arange(count)
    real = np.arange(width) < sizes[:, None]
    ids, types = batch.input_ids[order][real], batch.token_type_ids[order][real]
    rows, columns = np.divmod(batch.positions, width)
    positions, owners, labels = starts[rows] + columns, place[rows], batch.labels.astype(np.int64)
    full, every = int((lengths == longest).sum()), sizes.tolist()
    if fill:
        grain = max(64, -(-count * longest // 64 // 64) * 64)
        full -= full % (32 if count >= 128 else 8)
        more = grain - len(ids) % grain
        ids, types = _longer(ids, more, pad_id), _longer(types, more, 0)
        filling = [longest] * (more // longest) + [more % longest] * (more % longest > 0)
        every += [0] * (-(-grain // longest) - len(filling)) + filling
        more = -len(labels) % (grain // 4)
        positions, owners, labels = (
            _longer(part, more, value) for part, value in ((positions, 0), (owners, 0), (labels, IGNORED))
        )

    def move(array: np.ndarray) -> Tensor:
        return to_device(torch.from_numpy(np.ascontiguousarray(array)), device)

    return Micro(
        input_ids=move(ids),
        token_type_ids=move(types),
        boundaries=Boundaries.of(every, device, longest, full, empty=fill),
        positions=move(positions),
        labels=move(labels),
        pair_labels=None if batch.pair_labels is None else move(batch.pair_labels[order]),
        owners=move(owners),
        examples=count,
        pieces=int(lengths.sum()),
        masked=len(batch.labels),
        squares=int((lengths.astype(np.int64) ** 2).sum()),
    )


def _longer(array: np.ndarray, count: int, value: int) -> np.ndarray:
    return np.append(array, np.full(count, value, array.dtype))


def fitting(config: ModelConfig, length: int, device: torch.device) -> int:
    """How many examples of this length should go through at once: what fits, and no more than keeps a device busy."""
    if device.type != "cuda":
        return max(1, (1 << 14) // length)
    memory = torch.cuda.get_device_properties(device).total_memory
    fit = largest_batch(config, length, int(0.9 * memory) - CONTEXT)
    return max(1, min(fit, (1 << 17) // length))
