"""A phase -> its batches, packed and on the device, from any step on.

A phase has one length, or several that its steps take in turn. The examples of each length are a stream of their own,
with a place of its own in it.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from litebert.corpus.batches import Place, Stream, batches
from litebert.corpus.pack import pack_all
from litebert.model.packing import to_device
from litebert.recipe import Phase
from litebert.train.dial import drawn
from litebert.train.feed import Micro, fitting, to_micro
from litebert.train.growth import with_layers
from litebert.train.schedule import Stage, rate_at
from litebert.train.session import Session
from litebert.train.steps import Update
from litebert.train.stopping import signal_of

Places = Mapping[int, Place]  # by length


@dataclass(frozen=True)
class Part:
    """Some examples of a batch, and what each of their losses weighs: 1 over what the whole batch predicts, over all
    processes."""

    micro: Micro
    weights: Tensor  # of a masked piece, of a pair, of the other terms

    @property
    def shape(self) -> tuple[int, ...]:
        return self.micro.packed.longest, *self.micro.packed.sizes

    def tensors(self) -> list[Tensor]:
        return [self.weights, self.micro.block]


@dataclass(frozen=True)
class Batched(Update[Part]):
    """A batch in parts, where the next ones begin, and the signal that asks to stop, or 0."""

    places: Places
    stop: int


def first_places(stage: Stage, plan: Sequence[Stage], places: Places) -> Places:
    """Where a phase begins. Examples of a length that the phase before did not have are in another order, so they start
    with an epoch of their own, which no length has had; the places of lengths that have gone are kept for that."""
    before = plan[stage.number - 1].phase.lengths if stage.number else ()
    fresh = Place(max((place.epoch + 1 for place in places.values()), default=0), 0)
    here = {length: places.get(length, fresh) if length in before else fresh for length in stage.phase.lengths}
    return {**places, **here}


def updates(
    session: Session, stage: Stage, plan: Sequence[Stage], step: int, places: Places
) -> Generator[Batched, None, None]:
    """The batches of a stage from a step on, packed and on the device."""
    phase, recipe, processes = stage.phase, session.recipe, session.processes
    data, model, run = recipe.data, recipe.model, recipe.run
    rank, ranks = processes.rank, processes.ranks
    fill = processes.device.type == "cuda"
    lengths, config = sorted(set(phase.lengths)), with_layers(model, phase.passes)
    at_once = {length: run.micro_batch or fitting(config, length, processes.device) for length in lengths}
    workers = -(-run.workers // len(lengths))  # of each length
    with ExitStack() as stack:
        sources = {}
        for length in lengths:
            stream = Stream(
                data.shards, recipe.examples(phase, length), phase.batch_of(length), run.seed, "train", rank, ranks
            )
            make = partial(pack_all, size=at_once[length], longest=length, pad_id=model.pad_id, fill=fill)
            feed = batches(stream, places[length], workers, make=make)
            sources[length] = stack.enter_context(closing(feed))
        while True:
            length = phase.lengths[(step - stage.first) % len(phase.lengths)]
            made, after = next(sources[length])
            counts = [sum(getattr(part, name) for part in made) for name in ("masked", "pieces")]
            masked, pieces, asked = processes.total(*counts, len(session.asked))
            weights = to_device(weights_of(session, phase, masked, pieces, phase.batch_of(length)), processes.device)
            depth, place = drawn(recipe.dial, run.seed, step), places[length]
            key = f"{length}-{phase.batch_of(length)}-{at_once[length]}-{place.epoch}-{place.index}-{rank}-{ranks}"
            parts = [
                Part(replace(to_micro(part, processes.device), depth=depth, key=f"{key}-{number}"), weights)
                for number, part in enumerate(made)
            ]
            seed = ((run.seed * 1_000_003 + step) * ranks + rank) % (1 << 63)
            places = {**places, length: after}
            yield Batched(parts, rate_at(plan, step, run.hold), seed, places, signal_of(session.asked, asked))
            step += 1


def weights_of(session: Session, phase: Phase, masked: float, pieces: float, examples: int) -> Tensor:
    """What one loss of each kind weighs (masked pieces, pairs, the other terms): each is a mean over the batch."""
    counts = {"masked": max(1, masked), "pieces": max(1, pieces), "examples": examples}
    taught = session.recipe.distill.masked if session.teacher is not None else 1.0
    own = [taught / counts["masked"], phase.pair_weight / examples]
    scale = {"examples": phase.pair_weight}
    more = [term.weight * scale.get(term.per, 1.0) / counts[term.per] for term in session.terms]
    return torch.tensor([*own, *more], dtype=torch.float64)
