"""Units -> what a model says of each, and after how many passes: each stops when its answer has settled.

A shared trunk can be read after any pass. The passes run one at a time, the head reads each, and a unit whose answer no
longer changes leaves the packed row, so that nothing is computed for those that are done.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from litebert.config import ModelConfig, UserError
from litebert.infer.batch import SENTENCE, Batch, on_host, to_batch, types_of, unit_shares
from litebert.model.heads import Network
from litebert.model.packing import visible
from litebert.tasks.example import Task
from litebert.tasks.features import Unit

SETTLING = (*SENTENCE, "choice")  # kinds of task whose answer is one row of numbers


@dataclass(frozen=True)
class Settle:
    """When an answer has settled: nothing in it changed by more than this since the pass before."""

    bound: float  # of the largest change of a probability; of a number, of its own change
    from_passes: int = 2  # the first pass after which an example may stop

    def __post_init__(self) -> None:
        if not self.bound > 0:
            raise UserError(f"settle = {self.bound:g} must be above 0: the largest change that still counts as none")
        if self.from_passes < 2:
            raise UserError(f"from_passes = {self.from_passes} must be at least 2: two passes are compared")


def settle_of(bound: float | None, from_passes: int | None) -> Settle | None:
    """As it was asked for; no bound: nothing stops early."""
    if bound is None:
        if from_passes is not None:
            raise UserError(f"from_passes = {from_passes} says when answers may settle; say settle = BOUND as well")
        return None
    return Settle(bound) if from_passes is None else Settle(bound, from_passes)


def check_settle(settle: Settle, config: ModelConfig, task: Task, passes: int) -> None:
    """Say before anything is read that answers cannot settle here."""
    if task.kind not in SETTLING:
        kinds = ", ".join(SETTLING)
        raise UserError(f"settle is for the kinds {kinds}, and the model was taught {task.kind}; leave it out")
    if not config.one_layer:
        raise UserError(
            f"settle = {settle.bound:g} needs a trunk whose layers are all the same one (sharing 'all', 1 group)"
        )
    if settle.from_passes > passes:
        raise UserError(f"from_passes = {settle.from_passes} is beyond the {passes} passes there are; nothing can stop")


def settled(
    network: Network, task: Task, units: Sequence[Unit], device: torch.device, settle: Settle, passes: int
) -> list[tuple[Any, int]]:
    """Of each unit what it says, as numbers on the host, and the passes that it took: at most so many."""
    found: list[tuple[Any, int]] = [(None, 0)] * len(units)
    left, batch = list(range(len(units))), to_batch(units, task, device)
    x, mask = network.encoder.embed(batch.input_ids, None, types_of(network, batch), batch.boundaries)
    before: Tensor | None = None
    for taken in range(1, passes + 1):
        x = network.encoder.trunk(x, mask, 1)  # (T, H)
        if taken < min(settle.from_passes - 1, passes):
            continue
        now = unit_shares(network, x, batch, task)  # (B, C)
        stays = moving(now, before, settle.bound) if taken < passes else torch.zeros_like(now[:, 0], dtype=torch.bool)
        here = stays.tolist()
        done = [at for at, moves in enumerate(here) if not moves]
        for at, said in zip(done, on_host(now[~stays], task, [units[left[at]] for at in done]), strict=True):
            found[left[at]] = said, taken
        left = [number for number, moves in zip(left, here, strict=True) if moves]
        if not left:
            break
        if done:
            smaller = to_batch([units[number] for number in left], task, device)
            x, batch = repacked(x, batch, stays, smaller), smaller
            mask = visible(batch.input_ids, None, batch.boundaries, network.config.causal)
        before = now[stays, : batch.options] if task.kind == "choice" else now[stays]
    return found


def moving(now: Tensor, before: Tensor | None, bound: float) -> Tensor:
    """Which rows changed by more than the bound; without a pass before, all of them: (B,)."""
    if before is None:
        return torch.ones_like(now[:, 0], dtype=torch.bool)
    return ~((now - before).abs().amax(1) <= bound)


def repacked(x: Tensor, batch: Batch, stays: Tensor, smaller: Batch) -> Tensor:
    """The states of the units that stay, as the smaller batch has them: it keeps the order of their sequences. What
    fills up is a sequence of its own, so any state will do there."""
    sizes = batch.boundaries.offsets.diff()[: batch.rows]
    kept = stays[batch.unit].repeat_interleave(sizes).nonzero()[:, 0]
    return x[functional.pad(kept, (0, len(smaller.input_ids) - len(kept)))]
