"""The losses of fine-tuning: sums over the examples of a part, so that any split of a batch gives the same update."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from litebert.corpus.pack import IGNORED
from litebert.infer.batch import Batch, beam_training, span_scores, states_of, unit_scores
from litebert.model.heads import Network
from litebert.tasks.example import Task
from litebert.tasks.features import Unit


@dataclass(frozen=True)
class Part:
    """Some examples of a step, and 1 over what all examples of it weigh."""

    batch: Batch
    share: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.batch.shape

    def tensors(self) -> list[Tensor]:
        return [*self.batch.tensors(), self.share]


class Tutor(nn.Module):
    """A network with the loss of its task on top."""

    def __init__(self, network: Network, task: Task, weights: Tensor | None = None) -> None:
        super().__init__()
        self.network, self.task = network, task
        self.weights: Tensor | None
        self.register_buffer("weights", weights, persistent=False)

    def forward(self, batch: Batch) -> Tensor:
        """The sum of the losses."""
        assert batch.target is not None
        network, task, target = self.network, self.task, batch.target
        states = states_of(network, batch)
        if task.kind == "answer":
            each = self._spans(states, batch, target)
            return each.sum()
        logits = unit_scores(network, states, batch, task)
        match task.kind:
            case "regress":
                each = (logits[:, 0] - target.to(logits.dtype)).square()
            case "several":
                each = F.binary_cross_entropy_with_logits(logits, target.to(logits.dtype), reduction="none").mean(-1)
            case "tag":
                each = F.cross_entropy(logits, target, reduction="none", ignore_index=IGNORED)
            case _:
                weights = None if self.weights is None else self.weights.to(logits.dtype)
                each = F.cross_entropy(logits, target, weight=weights, reduction="none")
        return each.sum()

    def _spans(self, states: Tensor, batch: Batch, target: Tensor) -> Tensor:
        """Of every window; one without the answer points at its first piece. 2.0 asks as well whether there is one."""
        start_at, end_at = target.unbind(1)
        if not self.task.unanswerable:
            start, end = span_scores(self.network, states, batch)
            return 0.5 * (_surprise(start, start_at) + _surprise(end, end_at))
        start, end, none = beam_training(self.network, states, batch, start_at)
        missing = F.binary_cross_entropy_with_logits(none, (start_at == 0).to(none.dtype), reduction="none")
        return 0.5 * (_surprise(start, start_at) + _surprise(end, end_at)) + 0.5 * missing


def _surprise(logits: Tensor, at: Tensor) -> Tensor:
    return F.cross_entropy(logits, at, reduction="none")


def weight_of(unit: Unit, task: Task, weights: list[float] | None) -> float:
    """What an example counts for: its class's weight, or how many words it has to tag."""
    if task.kind == "tag":
        return float((unit.target != IGNORED).sum())
    return 1.0 if weights is None else weights[unit.target]


def loss_of(tutor: nn.Module, part: Part) -> tuple[Tensor, Tensor]:
    """What to minimise, and what to count."""
    value = tutor(part.batch) * part.share
    return value, torch.stack([value.detach()])
