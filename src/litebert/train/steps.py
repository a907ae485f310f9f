"""The optimizer step, written once: accumulate, clip, check finite, step, yield a `Step`.

`pretrain.py` and its fellows each show their own loop over these, with when to log, score and save.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from litebert.strict import UserError
from litebert.train.optim import Lamb, clip_gradients
from litebert.train.sharded import is_sharded

T = TypeVar("T")


@dataclass(frozen=True)
class Update(Generic[T]):
    """What one step learns from."""

    parts: list[T]  # in turn, their gradients added
    rate: float
    seed: int  # of dropout


class Done(NamedTuple):
    """What one step did. All of it is on the device; reading it waits."""

    figures: Tensor  # what the loss function counted, added over the parts
    norm: Tensor  # of the gradient, before clipping
    taken: Tensor  # 1, or 0 where loss or gradient was not finite and nothing was changed


@dataclass(frozen=True)
class Step(Generic[T]):
    """An update and what came of it; look at that before the next step is made."""

    update: Update[T]
    done: Done


Work = Callable[[list[T]], Done]


class Skips:
    """Steps that changed nothing: in all, in a row so far, and in the longest row. Counted on the device."""

    def __init__(self, device: torch.device, saved: Sequence[float] = (0.0, 0.0, 0.0)) -> None:
        skipped, in_a_row, _ = saved  # a row that is over has had its say
        self.counts = torch.tensor([skipped, in_a_row, in_a_row], dtype=torch.float64, device=device)

    def add(self, taken: Tensor) -> None:
        missed = 1 - taken.double()
        row = (self.counts[1] + 1) * missed
        self.counts = torch.stack([self.counts[0] + missed, row, torch.maximum(self.counts[2], row)])

    def check(self, most: int, kept: str, advice: str, error: Callable[[str], UserError] = UserError) -> None:
        """Too many in a row end a run; `kept` is what it can go on from."""
        longest = int(self.counts[2])
        if longest >= most:
            raise error(f"loss or gradient were not finite in {longest} steps in a row; {kept}; {advice}")


def take_steps(updates: Iterable[Update[T]], optimizer: Lamb, work: Work[T]) -> Iterator[Step[T]]:
    """`work` is `one_step`, or something that does the same. Dropout is a function of the update's seed, so a run that
    resumes has no random state to remember."""
    for update in updates:
        torch.manual_seed(update.seed)
        for group in optimizer.param_groups:
            group["lr"].fill_(update.rate * group.get("scale", 1.0))
        yield Step(update, work(update.parts))


def one_step(
    parts: list[T],
    model: nn.Module,
    optimizer: Lamb,
    loss: Callable[[T], tuple[Tensor, Tensor]],  # what to minimise, and what to count
    clip: float,
) -> Done:
    optimizer.zero_grad()
    figures: Tensor | None = None
    for number, part in enumerate(parts):
        with _exchange(model, number == len(parts) - 1):
            value, counted = loss(part)
            # a loss that is not finite must show in every process, so it spoils the gradient that they share
            (value * torch.where(torch.isfinite(value.detach()), 1.0, torch.nan)).backward()  # type: ignore[no-untyped-call]
        figures = counted.detach() if figures is None else figures + counted.detach()
    assert figures is not None, "an update has at least one part"
    norm, finite = clip_gradients(model.parameters(), clip)
    optimizer.step(take=finite)
    return Done(figures, norm, finite)


def _exchange(model: nn.Module, last: bool) -> AbstractContextManager[object]:
    """Gradients travel between processes with the last part of an update only."""
    if is_sharded(model):
        model.set_requires_gradient_sync(last)
    if isinstance(model, DistributedDataParallel) and not last:
        return model.no_sync()
    return nullcontext()
