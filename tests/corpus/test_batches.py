"""The stream of batches: the same for any number of ranks and workers, from any place on."""

import os
import signal
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from litebert.config import ExampleConfig, UserError
from litebert.corpus.batches import START, Place, Stream, batches, skip, take

CONFIG = ExampleConfig(length=64)


@pytest.fixture
def folder(corpus):
    return str(corpus("unigram", "en", 60))


def same(one, two):
    for name in ("input_ids", "token_type_ids", "lengths", "positions", "labels", "pair_labels"):
        assert (getattr(one, name) == getattr(two, name)).all(), name


def rows(batch):
    """The examples of a batch, each by itself, so that other paddings compare equal."""
    width = batch.input_ids.shape[1]
    owner = batch.positions // width
    for row, length in enumerate(batch.lengths.tolist()):
        mine = owner == row
        yield (
            batch.input_ids[row, :length].tolist(),
            batch.token_type_ids[row, :length].tolist(),
            (batch.positions[mine] % width).tolist(),
            batch.labels[mine].tolist(),
            int(batch.pair_labels[row]),
        )


def stream_rows(stream, place, steps):
    return [row for batch, _ in islice(batches(stream, place), steps) for row in rows(batch)]


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_together_see_the_same_examples_in_the_same_order(ranks, folder):
    steps, size = 40, 24  # over the end of an epoch
    alone = list(islice(batches(Stream(folder, CONFIG, size)), steps))
    assert alone[-1][1].epoch >= 1
    shares = [
        list(islice(batches(Stream(folder, CONFIG, size, rank=rank, ranks=ranks)), steps)) for rank in range(ranks)
    ]
    for step in range(steps):
        together = [row for rank in range(ranks) for row in rows(shares[rank][step][0])]
        assert together == list(rows(alone[step][0]))
        assert {shares[rank][step][1] for rank in range(ranks)} == {alone[step][1]}


def test_resuming_gives_the_very_next_batch_also_on_another_number_of_ranks(folder):
    size = 24
    whole = list(islice(batches(Stream(folder, CONFIG, size)), 30))
    place = whole[19][1]  # what a checkpoint of two ranks holds
    on_two = list(islice(batches(Stream(folder, CONFIG, size, rank=1, ranks=2)), 20))
    assert on_two[-1][1] == place
    again = list(islice(batches(Stream(folder, CONFIG, size), place), 10))
    for (one, _), (two, _) in zip(whole[20:], again, strict=True):
        same(one, two)
    four = [stream_rows(Stream(folder, CONFIG, size, rank=rank, ranks=4), place, 1) for rank in range(4)]
    assert [row for share in four for row in share] == list(rows(whole[20][0]))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_other_processes_make_the_same_batches(workers, folder):
    stream = Stream(folder, CONFIG, 16)
    here = list(islice(batches(stream, Place(0, 5)), 12))
    there = list(islice(batches(stream, Place(0, 5), workers=workers), 12))
    for (one, place), (two, other) in zip(here, there, strict=True):
        same(one, two)
        assert place == other


def test_a_killed_worker_is_said(folder):
    loader = batches(Stream(folder, CONFIG, 16), workers=2, ahead=1)
    next(loader)
    for child in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
        if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text():
            os.kill(int(child), signal.SIGKILL)
    with pytest.raises(UserError, match="a process that makes batches was killed"):
        list(islice(loader, 10))


def test_an_epoch_holds_every_example_once_and_the_next_is_in_another_order(folder):
    stream = Stream(folder, CONFIG, 1)
    examples = stream.examples()
    size = len(examples.epoch(0))
    index = list(zip(*(getattr(examples.epoch(0), name).tolist() for name in ("shard", "first")), strict=True))
    assert len(set(index)) == size
    assert examples.epoch(0).number.tolist() != examples.epoch(1).number.tolist()
    assert skip(examples, START, size) == Place(1, 0)
    assert skip(examples, START, size - 1) == Place(0, size - 1)
    batch, place = take(examples, stream, Place(0, size - 1))
    assert place == Place(1, 0)
    assert len(batch.lengths) == 1


def test_a_batch_larger_than_an_epoch_goes_on_into_the_next(folder):
    examples = Stream(folder, CONFIG, 1).examples()
    size = len(examples.epoch(0)) + 10
    batch, place = take(examples, Stream(folder, CONFIG, size), START)
    assert len(batch.lengths) == size
    assert place == Place(1, 10)
    found = list(rows(batch))
    single = [row for index in range(10) for row in rows(examples.batch(1, [index]))]
    assert found[-10:] == single
    assert batch.spans.sum() > 0


def test_masked_positions_point_at_what_was_masked(folder):
    for batch, _ in islice(batches(Stream(folder, CONFIG, 50)), 20):
        ids = batch.input_ids.ravel()[batch.positions]
        assert batch.attention_mask.ravel()[batch.positions].all()
        assert (np.diff(batch.positions) > 0).all()
        assert 0.7 < (ids != batch.labels).mean() <= 1


def test_the_held_out_part_is_another(corpus):
    folder = str(corpus("unigram", "en", 200, 0.2))
    train, aside = (Stream(folder, CONFIG, 8, part=part).examples() for part in ("train", "held-out"))
    assert train.corpus.documents + aside.corpus.documents == 200
    assert 20 < aside.corpus.documents < 60


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"size": 10, "ranks": 4}, "a batch of 10 does not divide among 4 processes"),
        ({"size": 8, "ranks": 2, "rank": 2}, "rank 2 is none of 0 to 1"),
    ],
)
def test_impossible_streams_are_one_line(values, sentence):
    with pytest.raises(UserError, match=sentence):
        Stream("x", CONFIG, **values)
