"""The losses of fine-tuning: sums over the examples of a part, so that any split of a batch gives the same update.

Beside the labels an answer may follow another one: that of a teacher, or, with a dial, of its own greater depth.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from litebert.config import DialConfig, GuideConfig
from litebert.corpus.pack import IGNORED
from litebert.infer.batch import Batch, beam_training, span_scores, state_inputs, unit_scores
from litebert.model.heads import Network
from litebert.tasks.example import Task
from litebert.tasks.features import Unit


@dataclass(frozen=True)
class Part:
    """Some examples of a step, 1 over what all examples of it weigh, and the depth that a dial has drawn, or 0."""

    batch: Batch
    share: Tensor
    depth: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.batch.shape, self.depth)

    def tensors(self) -> list[Tensor]:
        return [*self.batch.tensors(), self.share]


class Tutor(nn.Module):
    """A network with the loss of its task on top."""

    def __init__(
        self,
        network: Network,
        task: Task,
        weights: Tensor | None = None,
        teacher: Network | None = None,
        guide: GuideConfig | None = None,
        dial: DialConfig | None = None,
    ) -> None:
        super().__init__()
        self.network, self.task = network, task
        self.guide, self.dial = guide or GuideConfig(), dial or DialConfig()
        self.teacher = [] if teacher is None else [teacher]  # in a list: it is not part of what is trained or saved
        self.weights = weights  # of the classes, where the network is

    def forward(self, batch: Batch, depth: int = 0) -> Tensor:
        """The sum of the losses."""
        encoder, inputs = self.network.encoder, state_inputs(self.network, batch)
        states = encoder.hidden_states(**inputs) if depth else [encoder(**inputs)]
        deep = self.answers(self.network, states[-1], batch)
        loss = self.loss(deep, batch)
        for teacher in self.teacher:
            with torch.no_grad():
                theirs = teacher.encoder(**state_inputs(teacher, batch))
                wanted = self.answers(teacher, theirs, batch)
            followed = self.apart(deep, wanted, batch, self.guide.temperature)
            loss = self.guide.hard * loss + self.guide.soft * followed
        if depth:
            states_there = states[depth * self.network.config.inner_groups]
            shallow = self.answers(self.network, states_there, batch)
            followed = self.apart(shallow, tuple(each.detach() for each in deep), batch, 1.0)
            loss = loss + self.dial.weight * self.loss(shallow, batch) + self.dial.soft * followed
        return loss

    def answers(self, network: Network, states: Tensor, batch: Batch) -> tuple[Tensor, ...]:
        """Logits as the task has them: one table, or starts and ends (and, for 2.0, whether there is an answer)."""
        if self.task.kind != "answer":
            return (unit_scores(network, states, batch, self.task),)
        if not self.task.unanswerable:
            start, end = span_scores(network, states, batch)
            return start, end
        assert batch.target is not None
        return beam_training(network, states, batch, batch.target[:, 0])

    def loss(self, answers: tuple[Tensor, ...], batch: Batch) -> Tensor:
        """Against the labels. Of every window; one without the answer points at its first piece."""
        logits, target = answers[0], batch.target
        assert target is not None
        match self.task.kind:
            case "answer":
                each = 0.5 * (_surprise(answers[0], target[:, 0]) + _surprise(answers[1], target[:, 1]))
                if len(answers) == 3:
                    none = (target[:, 0] == 0).to(answers[2].dtype)
                    each = each + 0.5 * F.binary_cross_entropy_with_logits(answers[2], none, reduction="none")
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

    def apart(self, mine: tuple[Tensor, ...], theirs: tuple[Tensor, ...], batch: Batch, heat: float) -> Tensor:
        """How far one answer is from another that it should follow: 0 where they are the same."""
        match self.task.kind:
            case "regress":
                return (mine[0] - theirs[0]).square().sum()
            case "several":
                return _surplus(mine[0] / heat, theirs[0] / heat).mean(-1).sum() * heat**2
            case "tag":
                assert batch.target is not None
                return (divergence(mine[0], theirs[0], heat) * (batch.target != IGNORED)).sum()
            case "answer":
                found = 0.5 * (divergence(mine[0], theirs[0], heat) + divergence(mine[1], theirs[1], heat)).sum()
                if len(mine) == 3:
                    found = found + 0.5 * _surplus(mine[2] / heat, theirs[2] / heat).sum() * heat**2
                return found
        each = divergence(mine[0], theirs[0], heat)
        if self.weights is not None and batch.target is not None:  # a class weighs what it does among the labels
            each = each * self.weights.to(each.dtype)[batch.target]
        return each.sum()


def divergence(mine: Tensor, theirs: Tensor, heat: float) -> Tensor:
    """KL(theirs ‖ mine) of the shares at a temperature, times its square."""
    least = torch.finfo(mine.dtype).min  # where there is no choice; a low temperature must not make it infinite
    guess, target = (F.log_softmax((logits / heat).clamp(min=least), -1) for logits in (mine, theirs))
    return F.kl_div(guess, target, log_target=True, reduction="none").sum(-1) * heat**2


def _surplus(mine: Tensor, theirs: Tensor) -> Tensor:
    """The same of two-sided choices."""
    target = theirs.sigmoid()
    own = F.binary_cross_entropy_with_logits(theirs, target, reduction="none")
    return F.binary_cross_entropy_with_logits(mine, target, reduction="none") - own


def _surprise(logits: Tensor, at: Tensor) -> Tensor:
    return F.cross_entropy(logits, at, reduction="none")


def weight_of(unit: Unit, task: Task, weights: list[float] | None) -> float:
    """What an example counts for: its class's weight, or how many words it has to tag."""
    if task.kind == "tag":
        return float((unit.target != IGNORED).sum())
    return 1.0 if weights is None else weights[unit.target]


def loss_of(tutor: nn.Module, part: Part) -> tuple[Tensor, Tensor]:
    """What to minimise, and what to count."""
    value = tutor(part.batch, part.depth) * part.share
    return value, torch.stack([value.detach()])
