"""Batches as the network takes them: packed, split or filled up, the guesses are those of the padded batch."""

from copy import deepcopy
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from litebert.config import HeadConfig
from litebert.corpus.batches import START, Stream, take
from litebert.corpus.pack import IGNORED, pack, split
from litebert.model.weights import build
from litebert.recipe import DataConfig
from litebert.train.capture import Recorded, Replay
from litebert.train.feed import to_micro
from litebert.train.objective import build_objective
from litebert.train.steps import Done
from litebert.train.supply import Part

CPU = torch.device("cpu")


@pytest.fixture
def batch(shards):
    stream = Stream(str(shards), DataConfig(shards=str(shards), short_rate=0.5).examples(128), 24, 3)
    made, _ = take(stream.examples(), stream, START)
    assert 0 < (made.lengths == 128).sum() < 24
    return made


@pytest.fixture
def network(small):
    return build(
        small(vocab_size=100, positions=128), [HeadConfig(kind="mlm"), HeadConfig(kind="pair")], seed=1
    ).double()


def padded(network, batch):
    """Straight from the definition: losses of the padded batch, in the batch's own order."""
    ids, types, mask = (
        torch.from_numpy(part).long() for part in (batch.input_ids, batch.token_type_ids, batch.attention_mask)
    )
    positions = torch.from_numpy(batch.positions)
    logits = network(ids, mask, types, positions=positions)
    masked = torch.nn.functional.cross_entropy(logits["mlm"], torch.from_numpy(batch.labels).long(), reduction="none")
    pairs = torch.from_numpy(batch.pair_labels)
    return masked, torch.nn.functional.cross_entropy(logits["pair"], pairs, reduction="none")


@pytest.mark.parametrize("fill", [False, True])
@pytest.mark.parametrize("size", [24, 7])
def test_packed_split_or_filled_the_losses_are_those_of_the_padded_batch(fill, size, batch, network):
    objective = build_objective(network, torch.float64, False, False).eval()
    masked, pair = padded(network, batch)
    found, pairs, right = [], [], 0
    for part in split(batch, size):
        micro = to_micro(pack(part, 128, 0, fill), CPU)
        guesses, real = objective(micro), micro.packed.masked
        found.append(guesses.masked[:real])
        assert not guesses.masked[real:].any()
        assert not guesses.masked_right[real:].any()
        assert (micro.labels[real:] == IGNORED).all()
        back = np.argsort(np.argsort(part.lengths != 128, kind="stable"), kind="stable")
        pairs.append(guesses.pair[torch.from_numpy(back)])
        right += guesses.sums()[1]
    torch.testing.assert_close(torch.cat(found), masked, rtol=0, atol=1e-10)
    torch.testing.assert_close(torch.cat(pairs), pair, rtol=0, atol=1e-10)
    assert right <= len(masked)


def test_counts_and_owners_are_those_of_the_batch(batch):
    packed = pack(batch, 128, 0, True)
    assert (packed.pieces, packed.masked, packed.examples) == (batch.lengths.sum(), len(batch.labels), 24)
    assert packed.squares == (batch.lengths**2).sum()
    order = np.argsort(batch.lengths != 128, kind="stable")
    rows = order[to_micro(packed, CPU).owners[: packed.masked].numpy()]
    assert (rows == batch.positions // batch.input_ids.shape[1]).all()


def test_filling_gives_few_shapes(shards):
    stream = Stream(str(shards), DataConfig(shards=str(shards), short_rate=0.3).examples(128), 64, 3)
    examples, place, shapes = stream.examples(), START, {True: set(), False: set()}
    for _ in range(20):
        made, place = take(examples, stream, place)
        for fill in shapes:
            packed = pack(made, 128, 0, fill)
            shapes[fill].add(packed.sizes)
            assert packed.sizes[0] - packed.pieces <= (128 if fill else 0)
    assert len(shapes[True]) < 0.75 * len(shapes[False])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_on_a_gpu_a_recorded_run_is_the_run_itself(precision, table, tmp_path):
    from litebert.recipe import apply_sets
    from litebert.train.pretrain import pretrain
    from litebert.train.processes import joined

    found = {}
    for capture in ("auto", "off"):
        told = []
        settings = {"steps": 60, "log_every": 10, "capture": capture, "precision": precision, "workers": 1}
        with joined("cuda") as processes:
            recipe = apply_sets(table(run=settings, optimizer={"kind": "adamw", "correct_bias": True}), [])
            pretrain(recipe, tmp_path / capture, False, processes, told.append)
        found[capture] = torch.tensor([[line["masked_loss"], line["norm"]] for line in told if line["kind"] == "train"])
    tolerance = 1e-3 if precision == "fp32" else 0.05
    torch.testing.assert_close(found["auto"], found["off"], rtol=tolerance, atol=tolerance)


def test_a_step_is_recorded_on_the_copy_that_it_first_ran_on():
    """On another one the compiler would have to work while recording, which ends the run."""

    @dataclass
    class Numbers:
        value: torch.Tensor

        @property
        def shape(self):
            return tuple(self.value.shape)

        def tensors(self):
            return [self.value]

    class Recorder(Replay):
        def first(self, part):
            return self.work([part])

        def record(self, part):
            self.seen_recording.append(part)
            done = Done(part.value, part.value, part.value)
            return Recorded(SimpleNamespace(replay=lambda: self.work([part])), done)

    ran = []
    replay = Recorder(lambda parts: ran.append((parts[0], parts[0].value.sum().item())))
    replay.seen_recording = []
    given = [Numbers(torch.full((size,), value)) for size, value in [(2, 1.0), (3, 2.0), (2, 3.0), (3, 4.0), (2, 5.0)]]
    for part in given:
        replay([part])
    assert [total for _, total in ran] == [2, 6, 6, 12, 10]
    own = {id(part) for part, _ in ran}
    assert own == {id(part) for part in replay.seen_recording}
    assert not own & {id(part) for part in given}


def test_a_copy_of_a_part_is_fed_through_its_block_alone(batch):
    """What the replay of a recorded step relies on: its inputs are views of the block that is copied into."""
    first, second = (Part(to_micro(pack(batch, 128, pad, True), CPU), torch.ones(2)) for pad in (0, 7))
    assert first.shape == second.shape
    recorded = deepcopy(first)
    for ours, theirs in zip(recorded.tensors(), second.tensors(), strict=True):
        ours.copy_(theirs)
    assert torch.equal(recorded.micro.input_ids, second.micro.input_ids)
    assert not torch.equal(recorded.micro.input_ids, first.micro.input_ids)
    for name in ("offsets", "tail", "places"):
        ours, theirs = getattr(recorded.micro.boundaries, name), getattr(second.micro.boundaries, name)
        assert torch.equal(ours, theirs)
        assert ours.untyped_storage().data_ptr() == recorded.micro.block.untyped_storage().data_ptr()
