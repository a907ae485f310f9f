"""Units -> one packed row on a device -> scores: what training and answering both do.

Short texts cost what they are: nothing is padded but the few scores of a span or a choice.
"""

from collections.abc import Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.model.heads import Beam, Network, Sentence, widened
from litebert.model.packing import Boundaries, to_device
from litebert.tasks.example import Kind, Task
from litebert.tasks.features import IGNORED, Unit

SENTENCE: tuple[Kind, ...] = ("classify", "several", "regress")
FEW, WIDTH = 128, 32  # where batches are to be of few shapes, their pieces and widths are multiples of these


@dataclass(frozen=True)
class Batch:
    """Sequences of some units in one row."""

    input_ids: Tensor  # (T,) the pieces, then what fills up
    token_type_ids: Tensor  # (T,)
    boundaries: Boundaries  # of the sequences, then of what fills up
    unit: Tensor  # (N,) which unit a sequence belongs to
    option: Tensor  # (N,) its number in that unit
    cells: Tensor  # (T,) where a piece stands in a padded (N, S); what fills up: in one cell more
    allowed: Tensor | None  # (N, S) answer: where it may start or end
    target: Tensor | None  # classify, choice (B,); several (B, C); regress (B,); tag (T,); answer (N, 2)
    units: int
    options: int  # sequences of the unit that has the most

    @property
    def rows(self) -> int:
        return len(self.unit)

    @property
    def width(self) -> int:
        return self.boundaries.longest

    def wide(self, values: Tensor, fill: float) -> Tensor:
        """Values of the pieces (T, …) as a padded batch (N, S, …)."""
        cells = self.rows * self.width
        padded = values.new_full((cells + 1, *values.shape[1:]), fill).index_copy(0, self.cells, values)
        return padded[:cells].view(self.rows, self.width, *values.shape[1:])

    @property
    def shape(self) -> tuple[int, ...]:
        """Batches of one shape are the same work."""
        rows = self.boundaries
        sizes = len(self.input_ids), len(rows.offsets), len(rows.tail), rows.longest
        return (*sizes, self.rows, self.units, self.options)

    def tensors(self) -> list[Tensor]:
        """All that differs between two batches of one shape."""
        rows = self.boundaries
        parts = (self.input_ids, self.token_type_ids, rows.offsets, rows.tail, rows.places, self.unit, self.option)
        return [part for part in (*parts, self.cells, self.allowed, self.target) if part is not None]


def filling(pieces: int, longest: int, rows: int, least: int = 16) -> list[int]:
    """Sequences of nothing, and of padding, that bring a row up to one of a few sizes, at most a sixteenth larger, or
    to the least: the libraries make, and keep, a plan for every size they meet.

    >>> filling(1000, 40, 31), filling(1024, 40, 32), filling(1000, 10, 31)
    ([24], [], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 10, 4])
    """
    grain = max(least, 1 << max(0, pieces.bit_length() - 5))
    more = -pieces % grain
    if not more and rows % 16:
        more = grain
    sizes = [longest] * (more // longest) + [more % longest] * (more % longest > 0)
    return [0] * (-(rows + len(sizes)) % 16) + sizes


def to_batch(units: Sequence[Unit], task: Task, device: torch.device, few: int = 0) -> Batch:
    """The longest sequences come first: attention treats those that are full as one dense batch. `few`: it does not,
    and widths are round, so that many batches have one shape; but no sequence has more pieces than this."""
    rows = [(number, option) for number, unit in enumerate(units) for option in range(len(unit.ids))]
    sizes = np.array([len(units[number].ids[option]) for number, option in rows])
    order = np.argsort(-sizes, kind="stable")
    rows, sizes = [rows[at] for at in order], sizes[order]
    ids, types = (
        np.concatenate([getattr(units[number], name)[option] for number, option in rows]) for name in ("ids", "types")
    )
    widest = int(sizes.max())
    widest = max(widest, min(widest + -widest % WIDTH, few))
    cells = np.repeat(np.arange(len(rows)) * widest - (np.cumsum(sizes) - sizes), sizes) + np.arange(len(ids))
    allowed = None
    if task.kind == "answer":
        allowed = np.zeros((len(rows), widest), dtype=bool)
        for row, (number, _) in enumerate(rows):
            window = units[number].window
            assert window is not None, "a question has windows"
            allowed[row, 0] = True
            allowed[row, window.first : window.first + len(window.offsets)] = True

    more = filling(len(ids), widest, len(rows), FEW if few else 16)
    ids, types = (np.append(row, np.zeros(sum(more), dtype=row.dtype)).astype(np.int64) for row in (ids, types))
    cells = np.append(cells, np.full(sum(more), len(rows) * widest))

    def here(array: np.ndarray) -> Tensor:
        return to_device(torch.from_numpy(np.ascontiguousarray(array)), device)

    target = _targets(units, rows, task, sum(more))
    return Batch(
        here(ids),
        here(types),
        Boundaries.of([*sizes.tolist(), *more], device, widest, full=0 if few else None, empty=True),
        here(np.array([number for number, _ in rows])),
        here(np.array([option for _, option in rows])),
        here(cells),
        None if allowed is None else here(allowed),
        None if target is None else here(target),
        len(units),
        max(len(unit.ids) for unit in units),
    )


def _targets(units: Sequence[Unit], rows: Sequence[tuple[int, int]], task: Task, more: int) -> np.ndarray | None:
    if any(unit.target is None for unit in units):
        return None
    if task.kind == "tag":
        return np.concatenate([*(units[number].target for number, _ in rows), np.full(more, IGNORED)])
    if task.kind == "answer":
        return np.array([units[number].target for number, _ in rows], dtype=np.int64)
    wanted = np.float32 if task.kind in ("several", "regress") else np.int64
    return np.array([unit.target for unit in units], dtype=wanted)


def batches(units: Sequence[Unit], pieces: int) -> Iterator[list[int]]:
    """The numbers of units that go through together: of like length, at most so many pieces, padding for spans
    included."""
    order = sorted(range(len(units)), key=lambda number: units[number].pieces)
    some: list[int] = []
    for number in order:
        if some and (len(some) + 1) * units[number].pieces > pieces:
            yield some
            some = []
        some.append(number)
    if some:
        yield some


def head_of(task: Task) -> str:
    """The kind of head that answers a task."""
    if task.kind == "answer":
        return "span-beam" if task.unanswerable else "span"
    return {"several": "classify"}.get(task.kind, task.kind)


def types_of(network: Network, batch: Batch) -> Tensor | None:
    return batch.token_type_ids if network.config.token_types > 1 else None


def state_inputs(network: Network, batch: Batch, passes: int | None = None) -> dict[str, Any]:
    """What the encoder is called with."""
    found = {"input_ids": batch.input_ids, "token_type_ids": types_of(network, batch), "boundaries": batch.boundaries}
    return found | {"passes": passes}


def states_of(network: Network, batch: Batch, passes: int | None = None) -> Tensor:
    given, looped = state_inputs(network, batch, passes), getattr(network.encoder, "looped", None)
    if looped is not None and looped.takes(*(bare := without_fill(network, batch))):
        given |= dict(zip(("input_ids", "token_type_ids", "boundaries"), bare, strict=True))
    states: Tensor = network.encoder(**given)
    fill = len(batch.input_ids) - len(states)
    return F.pad(states, (0, 0, 0, fill)) if fill else states  # (T, H)


def without_fill(network: Network, batch: Batch) -> tuple[Tensor, Tensor | None, Boundaries]:
    """The pieces, their types and where they end, for a network that has a quicker way, to which all sizes are alike
    (`infer/loop.py`)."""
    pieces, types = int(batch.boundaries.offsets[batch.rows]), types_of(network, batch)
    ends = Boundaries.of(batch.boundaries.lengths[: batch.rows], empty=True)
    return batch.input_ids[:pieces], None if types is None else types[:pieces], ends


def unit_scores(network: Network, states: Tensor, batch: Batch, task: Task) -> Tensor:
    """Logits of sentence heads (B, C), pooled over windows; of a choice (B, options); of tags (T, C)."""
    head = head_of(task)
    if task.kind == "tag":
        return widened(network.heads[head](states))
    logits = widened(network.heads[head](network.sentence(states, head, batch.boundaries)))[: batch.rows]  # (N, C)
    if task.kind == "choice":
        least = torch.finfo(logits.dtype).min
        table = logits.new_full((batch.units, batch.options), least)
        return table.index_put((batch.unit, batch.option), logits[:, 0])
    if batch.rows == batch.units:  # no windows: only back into the units' order
        return torch.zeros_like(logits).index_copy(0, batch.unit, logits)
    both = torch.cat([logits, torch.ones_like(logits[:, :1])], 1)  # their sums, and how many they are
    sums = logits.new_zeros(batch.units, both.shape[1]).index_add(0, batch.unit, both)
    return sums[:, :-1] / sums[:, -1:]


def unit_shares(network: Network, states: Tensor, batch: Batch, task: Task) -> Tensor:
    """What sentence heads and choices say: the probability of each label or option, or the number; (B, C)."""
    logits = unit_scores(network, states, batch, task)
    if task.kind == "regress":  # in float64: float32 cannot tell one second of this year from the next
        return logits.double() * task.scale + task.mean
    return logits.sigmoid() if task.kind == "several" else logits.softmax(-1)


@torch.no_grad()
def restated(network: Network, before: Task, after: Task | None = None) -> Network:
    """The same answers from a head that counts from another task's mean and in its scale; by default from 0 in ones, so
    that what the network says are the numbers themselves."""
    mean, scale = (0.0, 1.0) if after is None else (after.mean, after.scale)
    if (before.mean, before.scale) == (mean, scale):
        return network
    made = copy(network)
    made._modules = dict(network._modules)
    made.heads = deepcopy(network.heads)
    head = made.heads[head_of(before)]
    assert isinstance(head, Sentence)
    head.out.weight.mul_(before.scale / scale)
    head.out.bias.copy_((head.out.bias.double() * before.scale + (before.mean - mean)) / scale)
    return made


def on_host(shares: Tensor, task: Task, some: Sequence[Unit]) -> list[np.ndarray]:
    """A row a unit; of a choice as long as it has options."""
    values = shares.double().cpu().numpy()
    return [row[: len(unit.ids)] if task.kind == "choice" else row for row, unit in zip(values, some, strict=True)]


def span_scores(network: Network, states: Tensor, batch: Batch) -> Tensor:
    """Start and end logits of every piece: (2, N, S), the least there is where a row has no piece."""
    logits = widened(network.heads["span"](states))  # (T, 2)
    wide = batch.wide(logits, torch.finfo(logits.dtype).min)
    return wide.permute(2, 0, 1)


def beam_training(network: Network, states: Tensor, batch: Batch, start_at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    assert batch.allowed is not None
    start, end, none = network.heads["span-beam"](batch.wide(states, 0.0), batch.allowed, start_at)
    return widened(start), widened(end), widened(none)


def beam_answers(network: Network, states: Tensor, batch: Batch) -> Beam:
    assert batch.allowed is not None
    found: Beam = network.heads["span-beam"].beam(batch.wide(states.float(), 0.0), batch.allowed)  # type: ignore[operator]
    return found
