"""Examples -> what a model says of each, in their order, a few at a time: any number of them takes the same memory."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from litebert.config import Reading, UserError
from litebert.infer.batch import (
    Batch,
    batches,
    beam_answers,
    head_of,
    on_host,
    span_scores,
    states_of,
    to_batch,
    unit_scores,
    unit_shares,
)
from litebert.infer.quick import place
from litebert.infer.settle import Settle, check_settle, settled
from litebert.model.heads import Network
from litebert.tasks.answers import Answers, Said, average
from litebert.tasks.example import Example, Task
from litebert.tasks.features import AT_ONCE, Unit, units
from litebert.tasks.squad import answer_text
from litebert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from litebert.infer.model import Model

PIECES = {"cpu": 1 << 12, "cuda": 1 << 16}  # at once
BEST = 20  # answers thought of


@dataclass(frozen=True)
class Asked:
    """A model and how it is to be asked."""

    network: Network
    tokenizer: Tokenizer
    task: Task
    reading: Reading
    device: torch.device
    passes: int | None = None  # of a shared trunk; None: as it was trained
    settle: Settle | None = None  # None: every example takes them all

    @property
    def most(self) -> int:
        """Passes that an example takes if it does not settle before."""
        return self.network.config.layers if self.passes is None else self.passes


@dataclass(frozen=True)
class Heard:
    """What a model says of one example."""

    said: Said
    lost: int  # pieces that it did not see
    passes: int  # that it took


def asked(
    model: "Model",
    device: torch.device | str = "cpu",
    precision: torch.dtype | None = None,
    passes: int | None = None,
    settle: Settle | None = None,
) -> Asked:
    """A model that was taught a task, ready to answer; on a GPU in bf16, unless another type is said. What it cannot do
    is said here, before anything is read."""
    if model.taught is None:
        heads = ", ".join(model.heads) or "none"
        raise UserError(f"this model was taught no task (its heads: {heads}); teach it one by: litebert finetune")
    if model.tokenizer is None:
        raise UserError("this model has no tokenizer, so it cannot read texts")
    model.encoder.trunk.walk(passes)
    if settle is not None:
        check_settle(settle, model.config, model.taught.task, model.config.layers if passes is None else passes)
    usual = torch.bfloat16 if torch.device(device).type == "cuda" else torch.float32
    network = place(model.network, device, precision or usual)
    taught = model.taught
    return Asked(network, model.tokenizer, taught.task, taught.reading, torch.device(device), passes, settle)


def ask(
    names: Sequence[str],
    loaded: Sequence["Model"],
    device: torch.device | str = "cpu",
    passes: int | None = None,
    settle: Settle | None = None,
) -> list[Asked]:
    """Several models ready to answer together; one that cannot is named."""
    found = []
    for name, model in zip(names, loaded, strict=True):
        try:
            found.append(asked(model, device, passes=passes, settle=settle))
        except UserError as problem:
            raise UserError(f"{name}: {problem}") from None
    check_ensemble(found)
    return found


def listen(
    models: Sequence[Asked], examples: Iterable[Example], took: Callable[[int], object] = lambda passes: None
) -> Iterator[tuple[Example, Said, int]]:
    """Each example, what the models say of it on average, and how many of its pieces they did not see. `took` hears
    the passes of each model on each example."""
    check_ensemble(models)
    source = iter(examples)
    while some := list(islice(source, AT_ONCE)):
        heard = [say(model, some) for model in models]
        for number, example in enumerate(some):
            here = [each[number] for each in heard]
            for one in here:
                took(one.passes)
            yield example, average([one.said for one in here]), max(one.lost for one in here)


def check_ensemble(models: Sequence[Asked]) -> Task:
    """The task that all of them were taught, with the mean of their thresholds."""
    first = models[0].task
    for other in models[1:]:
        if (other.task.kind, other.task.labels) != (first.kind, first.labels):
            raise UserError(
                f"the models were taught different things, {first.describe()} and {other.task.describe()}, "
                "and cannot be averaged"
            )
        if other.task.unanswerable != first.unanswerable:
            raise UserError("some of the models can say that a question has no answer and some cannot; ask them apart")
    return replace(first, threshold=sum(model.task.threshold for model in models) / len(models))


@torch.no_grad()
def say(model: Asked, examples: Sequence[Example]) -> list[Heard]:
    """What one model says of some examples."""
    made = list(units(model.tokenizer, model.task, [replace(each, target=None) for each in examples], model.reading))
    raw: list[tuple[Any, int]] = [(None, 0)] * len(made)
    for numbers in batches(made, PIECES.get(model.device.type, 1 << 12)):
        for number, found in zip(numbers, _together(model, [made[number] for number in numbers]), strict=True):
            raw[number] = found
    mine: list[list[int]] = [[] for _ in examples]
    for number, unit in enumerate(made):
        mine[unit.example].append(number)
    return [
        Heard(
            _merge(model.task, example, [(made[at], raw[at][0]) for at in own]),
            max((made[at].lost for at in own), default=0),
            max((raw[at][1] for at in own), default=0),
        )
        for example, own in zip(examples, mine, strict=True)
    ]


def _together(model: Asked, some: Sequence[Unit]) -> list[tuple[Any, int]]:
    """What each unit of a batch says, and the passes it took."""
    network, task = model.network, model.task
    if model.settle is not None:
        return settled(network, task, some, model.device, model.settle, model.most)
    batch = to_batch(some, task, model.device)
    states = states_of(network, batch, model.passes)
    return [(found, model.most) for found in _read(network, states, batch, task, some, model.reading)]


def _read(
    network: Network, states: torch.Tensor, batch: Batch, task: Task, some: Sequence[Unit], reading: Reading
) -> list[Any]:
    """What each unit of a batch says, as numbers on the host."""
    rows = batch.unit.tolist()
    if task.kind == "answer":
        found: list[Any] = [None] * len(some)
        windows = _beams(network, states, batch) if head_of(task) == "span-beam" else _spans(network, states, batch)
        for unit, each in zip(rows, windows, strict=True):
            found[unit] = _candidates(some[unit], *each, reading)
        return found
    if task.kind == "tag":
        logits = unit_scores(network, states, batch, task)
        sizes = [len(some[unit].ids[0]) for unit in rows]
        parts = torch.split(logits[: sum(sizes)].softmax(-1).double().cpu(), sizes)
        by_unit = dict(zip(rows, parts, strict=True))
        return [by_unit[unit].numpy() for unit in range(len(some))]
    return list(on_host(unit_shares(network, states, batch, task), task, some))


def _spans(network: Network, states: torch.Tensor, batch: Batch) -> Iterator[tuple[Any, Any, Any, float]]:
    """Starts, ends and scores of the likely spans of each window."""
    assert batch.allowed is not None
    scores = span_scores(network, states, batch)
    scores = scores.masked_fill(~batch.allowed, torch.finfo(scores.dtype).min / 4)  # two of them add up
    best, at = scores.topk(min(BEST, scores.shape[-1]))  # (2, N, K)
    for start, end, low, high in zip(*best.double().cpu().numpy(), *at.cpu().numpy(), strict=True):
        starts, ends = np.repeat(low, len(high)), np.tile(high, len(low))
        yield starts, ends, np.add.outer(start, end).ravel(), float("-inf")


def _beams(network: Network, states: torch.Tensor, batch: Batch) -> Iterator[tuple[Any, Any, Any, float]]:
    beam = beam_answers(network, states, batch)
    parts = (beam.start_at, beam.end_at, beam.start.double(), beam.end.double(), beam.no_answer.double())
    for low, high, start, end, none in zip(*(part.cpu().numpy() for part in parts), strict=True):
        yield np.repeat(low, high.shape[1]), high.ravel(), (start[:, None] + end).ravel(), float(none)


def _candidates(unit: Unit, starts: Any, ends: Any, scores: Any, none: float, reading: Reading) -> Any:
    """The spans that can be an answer: in the passage, not backwards, not too long, and this window speaks for them."""
    window = unit.window
    assert window is not None
    last = window.first + len(window.offsets)
    kept = []
    for start, end, value in zip(starts.tolist(), ends.tolist(), scores.tolist(), strict=True):
        inside = window.first <= start <= end < last
        if inside and end - start < reading.answer_length and window.spoken[start - window.first] and value > -1e30:
            kept.append((value, start, end))
    return sorted(kept, key=lambda span: -span[0])[:BEST], none


def _merge(task: Task, example: Example, parts: Sequence[tuple[Unit, Any]]) -> Said:
    """What the units of an example say together."""
    if task.kind == "tag":
        table = np.zeros((len(example.texts), len(task.labels)))
        table[:, task.labels.index("O") if "O" in task.labels else 0] = 1e-9  # of words that were not seen
        for unit, shares in parts:
            for word, row in zip(unit.words, shares, strict=True):
                if word >= 0:
                    table[word] = row
        return table
    if task.kind != "answer":
        found: np.ndarray = parts[0][1]
        return found
    spans = [(value, unit, start, end) for unit, (kept, _) in parts for value, start, end in kept]
    best: dict[str, tuple[float, int]] = {}
    for value, unit, start, end in sorted(spans, key=lambda span: -span[0]):
        assert unit.window is not None
        text = answer_text(example.texts[1], unit.window, start, end)
        if text and text not in best:
            best[text] = value, example.texts[1].index(text, unit.window.offsets[start - unit.window.first][0])
        if len(best) == BEST:
            break
    values = np.array([value for value, _ in best.values()])
    shares = np.exp(values - values.max()) if len(values) else values
    none = min(none for _, (_, none) in parts)
    starts = tuple(at for _, at in best.values())
    return Answers(tuple(best), tuple((shares / shares.sum()).tolist()) if len(values) else (), none, starts)
