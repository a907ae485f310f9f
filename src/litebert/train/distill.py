"""A teacher's answers as something to learn from: soft targets, the angle of the last states, hidden states, attention.

As DistilBERT does it (Sanh et al. 2019): the student begins with every other layer of its teacher, and its loss is a
weighted sum. Any member of the family teaches any other that reads the same pieces.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from litebert.config import DistillConfig, ModelConfig, UserError
from litebert.infer.model import Model
from litebert.model.encoder import attention_maps, plan_of
from litebert.model.heads import Network, widened
from litebert.text.tokenizer import Tokenizer
from litebert.train.answers import Answers
from litebert.train.feed import Micro
from litebert.train.growth import State, taken_from
from litebert.train.objective import Guesses, Objective, Term, read_inputs, read_places
from litebert.train.soft import AT_ONCE, soft_targets

TRIALS = 8  # batches that decide whether answers are read or asked for


def matched_layers(teacher: int, student: int) -> list[int]:
    """Which of the teacher's layers each of the student's stands for: the first, the last, and evenly between.

    >>> matched_layers(12, 6), matched_layers(12, 4), matched_layers(3, 3), matched_layers(12, 1)
    ([0, 2, 4, 7, 9, 11], [0, 4, 7, 11], [0, 1, 2], [11])
    """
    if student == 1:
        return [teacher - 1]
    return [round(layer * (teacher - 1) / (student - 1)) for layer in range(student)]


def terms(config: DistillConfig) -> list[Term]:
    """The losses that a teacher adds, but for those that weigh nothing."""
    every = [
        Term("soft", config.soft, "pieces" if config.where == "all" else "masked"),
        Term("cosine", config.cosine, "pieces"),
        Term("hidden", config.hidden, "pieces"),
        Term("attention", config.attention, "pieces"),
    ]
    return [term for term in every if term.weight] if config.teacher else []


class Pupil(Objective):
    """An objective that has a teacher beside it while it trains."""

    def __init__(
        self,
        network: Network,
        teacher: Network,
        config: DistillConfig,
        answers: Answers | None = None,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        super().__init__(network)
        self.teacher = [teacher]  # in a list: it is not part of what is trained, saved or sharded
        self.config, self.kept, self.say = config, answers, say
        self.times: list[tuple[float, float]] = []  # seconds of reading answers, and of asking for them
        self.matched = matched_layers(len(plan_of(teacher.config)), len(plan_of(network.config)))

    def forward(self, micro: Micro) -> Guesses:
        if not self.training:
            return super().forward(micro)
        network, teacher = self.network, self.teacher[0]
        mine = self._states(network, micro)
        theirs: list[Tensor] = []
        if self.kept is None and (self.config.soft or self.config.cosine or self.config.hidden):
            with torch.no_grad():
                theirs = self._states(teacher, micro)
        losses: dict[str, Callable[[], Tensor]] = {
            "soft": lambda: self._soft(mine[-1], theirs[-1] if theirs else None, micro),
            "cosine": lambda: cosine(mine[-1], theirs[-1], micro.packed.pieces),
            "hidden": lambda: distance(mine[1:], [theirs[at + 1] for at in self.matched], micro.packed.pieces),
            "attention": lambda: self._attention(micro),
        }
        guesses = self.guess(mine[-1][read_places(micro)], micro)
        more = [losses[term.name]().to(guesses.masked.dtype) for term in terms(self.config)]
        return guesses._replace(more=torch.stack(more) if more else guesses.more)

    def _states(self, network: Network, micro: Micro) -> list[Tensor]:
        """Of all layers where they are compared; else the last alone."""
        encoder, inputs = network.encoder, read_inputs(network, micro)
        return encoder.hidden_states(**inputs) if self.config.hidden else [encoder(**inputs)]

    def _soft(self, mine: Tensor, theirs: Tensor | None, micro: Micro) -> Tensor:
        packed, config = micro.packed, self.config
        every = torch.arange(packed.pieces, device=mine.device)
        where = every if config.where == "all" else micro.positions[: packed.masked]
        if not config.top:
            assert theirs is not None
            return soft_targets(self.network, self.teacher[0], mine, theirs, where, config.temperature, self.compared)
        if self.kept is None:
            known = self._likeliest(theirs, micro, where)
        else:
            known = self._remembered(self.kept, micro, where)
        return top_targets(self.network, mine[where], *known, config.temperature)

    def _remembered(self, kept: Answers, micro: Micro, where: Tensor) -> tuple[Tensor, Tensor]:
        """From disk where they are there; the first few of those are asked for as well, to see which is quicker."""
        begun = time.perf_counter()
        known = kept.get(micro.key, len(where), where.device)
        read = time.perf_counter() - begun
        if known is None:
            known = self._likeliest(None, micro, where)
            kept.put(micro.key, *known)
        elif len(self.times) < TRIALS:
            begun = time.perf_counter()
            self._likeliest(None, micro, where)[0].sum().item()
            self.times.append((read, time.perf_counter() - begun))
            if len(self.times) == TRIALS:
                self._choose()
        return known

    def _choose(self) -> None:
        read, asked = (statistics.median(column) for column in zip(*self.times, strict=True))
        told = (
            f"reading the teacher's answers takes {1000 * read:.1f} ms a batch, asking for them {1000 * asked:.1f} ms"
        )
        self.say(f"{told}: they are {'read' if read < asked else 'asked for'}")
        if read >= asked:
            self.kept = None

    @torch.no_grad()
    def _likeliest(self, theirs: Tensor | None, micro: Micro, where: Tensor) -> tuple[Tensor, Tensor]:
        """The teacher's best guesses at these places: log-probabilities, as they would be kept, and ids."""
        teacher, config = self.teacher[0], self.config
        if theirs is None:
            theirs = teacher.encoder(**read_inputs(teacher, micro))
        best = [
            _log_shares(teacher, theirs[some], config.temperature).topk(min(config.top, teacher.config.vocab_size))
            for some in torch.split(where, AT_ONCE)
        ]
        return torch.cat([each.values.float() for each in best]), torch.cat([each.indices for each in best])

    def _attention(self, micro: Micro) -> Tensor:
        """How far apart the two look, over all pieces: a mean over heads and matched layers."""
        teacher, (ids, mask, types) = self.teacher[0], padded(micro)
        mine = attention_maps(self.network.encoder, ids, mask, types if self.network.config.token_types > 1 else None)
        with torch.no_grad():
            theirs = attention_maps(teacher.encoder, ids, mask, types if teacher.config.token_types > 1 else None)
        real = mask.bool()
        apart = [
            gap(student.transpose(1, 2)[real], theirs[at].transpose(1, 2)[real]).mean(-1).sum()
            for student, at in zip(mine, self.matched, strict=True)
        ]
        return torch.stack(apart).mean()


def top_targets(student: Network, states: Tensor, shares: Tensor, ids: Tensor, temperature: float) -> Tensor:
    """KL(teacher ‖ student) over the teacher's likeliest pieces and, as one more choice, all the rest."""

    def part(states: Tensor, shares: Tensor, ids: Tensor) -> Tensor:
        guess = _log_shares(student, states, temperature)
        mine, theirs = (_with_rest(each.to(guess.dtype)) for each in (guess.gather(1, ids), shares))
        return F.kl_div(mine, theirs, log_target=True, reduction="sum")

    parts = zip(*(torch.split(each, AT_ONCE) for each in (states, shares, ids)), strict=True)
    sums = [checkpoint(part, *some, use_reentrant=False, preserve_rng_state=False) for some in parts]
    return torch.stack(sums).sum() * temperature**2


def _with_rest(log_shares: Tensor) -> Tensor:
    """(N, K) -> (N, K + 1): the last is what the others leave of 1."""
    rest = (1 - log_shares.exp().sum(-1, keepdim=True)).clamp(min=1e-6)
    return torch.cat([log_shares, rest.log()], -1)


def _log_shares(network: Network, states: Tensor, temperature: float) -> Tensor:
    logits = network.heads["mlm"](states, network.encoder.embeddings.words.weight)
    return F.log_softmax(widened(logits) / temperature, -1)


def cosine(mine: Tensor, theirs: Tensor, pieces: int) -> Tensor:
    """1 less the cosine of the angle between the two, added over the pieces."""
    return (1 - F.cosine_similarity(widened(mine[:pieces]), widened(theirs[:pieces]), dim=-1)).sum()


def distance(mine: Sequence[Tensor], theirs: Sequence[Tensor], pieces: int) -> Tensor:
    """The mean squared difference of the states, a mean over the layers, added over the pieces."""
    apart = [
        (widened(a[:pieces]) - widened(b[:pieces])).square().mean(-1).sum() for a, b in zip(mine, theirs, strict=True)
    ]
    return torch.stack(apart).mean()


def gap(mine: Tensor, theirs: Tensor) -> Tensor:
    """KL(theirs ‖ mine) of shares that may be zero."""
    least = torch.finfo(torch.float32).tiny
    a, b = widened(mine).clamp(min=least), widened(theirs).clamp(min=least)
    return (b * (b.log() - a.log())).sum(-1)


def padded(micro: Micro) -> tuple[Tensor, Tensor, Tensor]:
    """A packed row as ids, attention mask and token types of a padded batch."""
    offsets, longest = micro.boundaries.offsets[: micro.packed.examples + 1].long(), micro.boundaries.longest
    step = torch.arange(longest, device=offsets.device)
    mask = step < offsets.diff()[:, None]  # (B, S)
    at = (offsets[:-1, None] + step).clamp(max=len(micro.input_ids) - 1)
    return micro.input_ids[at] * mask, mask.long(), micro.token_type_ids[at] * mask


def check_teacher(teacher: Model, name: str, config: DistillConfig, model: ModelConfig, tokenizer: Tokenizer) -> None:
    """What cannot be taught, said before anything is written."""
    if "mlm" not in teacher.heads:
        raise UserError(
            f"{name} has no masked-LM head, so it has no answers to teach; give one that litebert pre-trained"
        )
    if teacher.tokenizer is not None and teacher.tokenizer.checksum != tokenizer.checksum:
        raise UserError(f"{name} reads other pieces than the shards are made of; build the corpus with its tokenizer")
    if teacher.config.vocab_size != model.vocab_size:
        sizes = f"{teacher.config.vocab_size} and {model.vocab_size}"
        raise UserError(f"{name} and its student must know the same pieces, not {sizes}; set model.vocab_size")
    if teacher.config.positions < model.positions:
        raise UserError(
            f"{name} reads {teacher.config.positions} positions, fewer than its student's {model.positions}; set "
            f"model.positions = {teacher.config.positions}"
        )
    wide = [key for key in ("cosine", "hidden") if getattr(config, key)]
    if wide and teacher.config.hidden_size != model.hidden_size:
        sizes = f"{teacher.config.hidden_size} and {model.hidden_size}"
        raise UserError(
            f"distill.{wide[0]} compares states, and those of {name} and its student are {sizes} wide; set it to 0"
        )
    if config.attention and teacher.config.heads != model.heads:
        raise UserError(
            f"distill.attention compares heads: {name} has {teacher.config.heads}, its student {model.heads}; "
            "set it to 0"
        )


def first_weights(teacher: Model, name: str, config: ModelConfig, fresh: State) -> State:
    """What a student begins with: of the layers the matched ones, of the rest whatever has its name."""
    layers = matched_layers(len(plan_of(teacher.config)), len(plan_of(config)))
    old: dict[str, Any] = {key: tensor.float() for key, tensor in teacher.network.state_dict().items()}
    taken = taken_from(old, plan_of(teacher.config), plan_of(config), layers)
    for key, tensor in taken.items():
        if key in fresh and fresh[key].shape != tensor.shape:
            sizes = f"{list(tensor.shape)} and {list(fresh[key].shape)}"
            raise UserError(f"{key} of {name} and of its student are {sizes}; set distill.start = 'fresh'")
    return fresh | {key: tensor for key, tensor in taken.items() if key in fresh}
