"""Plans: what a shard's examples hold follows from its own sentences, the seed, the epoch and its number."""

import numpy as np
import pytest

from litebert.config import ExampleConfig
from litebert.corpus import plan as planning
from litebert.corpus.plan import plan_shards
from litebert.corpus.shards import Shard

LAYOUTS = ["segment-pair", "sentence-pair", "doc-sentences", "full-sentences"]


def shard(seed, documents):
    """Documents of 1 to 60 sentences of 1 to 40 pieces."""
    draw = np.random.default_rng(seed)
    document_ends = np.cumsum(draw.integers(1, 60, documents))
    sentence_ends = np.cumsum(draw.integers(1, 40, document_ends[-1]))
    return Shard(np.zeros(0, np.uint16), sentence_ends.astype(np.uint32), document_ends.astype(np.uint32))


def config(layout):
    return ExampleConfig(layout=layout, objective="sop" if layout.endswith("pair") else "mlm", length=64)


@pytest.fixture
def shards():
    empty = Shard(np.zeros(0, np.uint16), np.zeros(0, np.uint32), np.zeros(0, np.uint32))
    return [shard(1, 30), empty, shard(2, 1), shard(3, 80)]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_shards_planned_together_are_those_planned_one_by_one(layout, shards, monkeypatch):
    together = plan_shards(shards, config(layout), 61, 5, 2)
    monkeypatch.setattr(planning, "TOGETHER", 1)
    alone = plan_shards(shards, config(layout), 61, 5, 2)
    first = plan_shards(shards[:2], config(layout), 61, 5, 2)
    assert len(together) == len(alone) == len(shards)
    assert sum(map(len, together)) > 50
    for one, other in zip([*together, *together[:2]], [*alone, *first], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_sentence_of_a_shard_is_planned_and_no_run_leaves_its_shard(layout, shards):
    shards = [each for each in shards if len(each.sentence_ends)]
    for each, runs in zip(shards, plan_shards(shards, config(layout), 61, 0, 0), strict=True):
        starts, sentences = np.append(0, each.document_ends[:-1]), len(each.sentence_ends)
        seen = np.zeros(sentences, dtype=bool)
        for begin, end in runs:
            seen[begin:end] = True
            if layout != "full-sentences":
                inside = np.searchsorted(each.document_ends, [begin, end - 1], side="right")
                assert inside[0] == inside[1]
        lonely = starts[np.diff(np.append(starts, sentences)) == 1] if layout.endswith("pair") else []
        assert set(np.flatnonzero(~seen)) == set(lonely)


def test_another_epoch_or_seed_cuts_elsewhere(shards):
    made = [plan_shards(shards, config("segment-pair"), 61, *drawn)[3].tolist() for drawn in ((0, 0), (0, 1), (1, 0))]
    assert made[0] != made[1] != made[2] != made[0]
