"""A batch -> its real pieces in one row, as one block of numbers that travels to another process or a device at once.

Full examples come first, so that attention can treat them as one dense batch.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from litebert.corpus.examples import Batch

IGNORED = -100  # the label of a place that only fills
ALIGNED = 32  # numbers: kernels read faster where a part begins at a round address


@dataclass(frozen=True)
class Packed:
    """As many examples as go through the network at once, as numbers in one block."""

    block: NDArray[np.int32]
    sizes: tuple[
        int, ...
    ]  # of input_ids, token_type_ids, places, offsets, tail, positions, labels, owners, pair_labels
    longest: int
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


def pack_all(batch: Batch, size: int, longest: int, pad_id: int, fill: bool) -> list[Packed]:
    """A batch in parts of at most so many examples, each packed."""
    return [pack(part, longest, pad_id, fill) for part in split(batch, size)]


def pack(batch: Batch, longest: int, pad_id: int, fill: bool) -> Packed:
    """`fill` a row up to one of a few sizes: on a GPU the libraries plan anew, and steps are recorded anew, for every
    shape they have not seen. At most one part in 64 is filling."""
    lengths, width, count = batch.lengths, batch.input_ids.shape[1], len(batch.lengths)
    order = np.argsort(lengths != longest, kind="stable")
    every = lengths[order]
    starts, place = np.empty((2, count), dtype=np.int64)
    starts[order], place[order] = np.cumsum(every) - every, np.arange(count)
    real = np.arange(width) < every[:, None]
    ids, types = batch.input_ids[order][real], batch.token_type_ids[order][real]
    rows, columns = np.divmod(batch.positions, width)
    positions, owners, labels = starts[rows] + columns, place[rows], batch.labels
    full = int((lengths == longest).sum())
    if fill:
        grain = max(64, -(-count * longest // 64 // 64) * 64)
        full -= full % (32 if count >= 128 else 8)
        more = grain - len(ids) % grain
        ids, types = _longer(ids, more, pad_id), _longer(types, more, 0)
        filling = [longest] * (more // longest) + [more % longest] * (more % longest > 0)
        every = np.append(every, [0] * (-(-grain // longest) - len(filling)) + filling)
        more = -len(labels) % (grain // 4)
        positions, owners, labels = (
            _longer(part, more, value) for part, value in ((positions, 0), (owners, 0), (labels, IGNORED))
        )
    offsets = np.append(0, np.cumsum(every))
    places = np.arange(len(ids)) - np.repeat(offsets[:-1], every)
    pairs = np.zeros(0) if batch.pair_labels is None else batch.pair_labels[order]
    parts = (ids, types, places, offsets, offsets[full:] - offsets[full], positions, labels, owners, pairs)
    return Packed(
        np.concatenate([_longer(part.astype(np.int32), -len(part) % ALIGNED, 0) for part in parts]),
        tuple(len(part) for part in parts),
        longest=longest,
        examples=count,
        pieces=int(lengths.sum()),
        masked=len(batch.labels),
        squares=int((lengths.astype(np.int64) ** 2).sum()),
    )


def _longer(array: np.ndarray, count: int, value: int) -> np.ndarray:
    return np.append(array, np.full(count, value, array.dtype))
