"""The depth dial: the losses by hand, shallow answers that become good, and the same run after a stop."""

import re
from dataclasses import replace

import pytest
import torch

from litebert.cli.train import as_text
from litebert.config import DialConfig, HeadConfig, UserError
from litebert.corpus.batches import START, Stream, take
from litebert.corpus.pack import pack
from litebert.model.weights import build
from litebert.recipe import DataConfig
from litebert.train import dial as module
from litebert.train.dial import Dialled, drawn, terms
from litebert.train.feed import to_micro
from litebert.train.objective import build_objective, read_inputs
from tests.train.conftest import same, weights

DIAL = {"depths": [1, 2]}


@pytest.mark.parametrize("inner", [1, 2])
def test_the_shallow_losses_are_those_of_the_shallow_network(inner, small, shards):
    """In float64: of the same weights run only so often, and the deep answer as its target."""
    stream = Stream(str(shards), DataConfig().examples(32), 6)
    batch, _ = take(stream.examples(), stream, START)
    micro = replace(to_micro(pack(batch, 32, 0, True), torch.device("cpu")), depth=2)
    config = small(vocab_size=300, inner_groups=inner)
    network = build(config, [HeadConfig(kind="mlm"), HeadConfig(kind="pair")], seed=1)
    every = terms(DialConfig(depths=(2,)))
    objective = build_objective(network, torch.float64, False, False, lambda net: Dialled(net, every)).train()
    found = objective(micro)
    more = dict(zip([term.name for term in every], found.more, strict=True))
    objective.eval()
    with torch.no_grad():
        deep, shallow = objective(replace(micro, depth=0)), objective(micro)
        states = [network.encoder(**read_inputs(network, replace(micro, depth=depth))) for depth in (0, 2)]
        table, at = network.encoder.embeddings.words.weight, micro.positions[: micro.packed.masked].long()
        p, q = (network.heads["mlm"](each, table, at).softmax(-1) for each in states)
    torch.testing.assert_close(found.masked, deep.masked)
    torch.testing.assert_close(found.pair, deep.pair)
    assert not torch.allclose(deep.masked, shallow.masked)
    torch.testing.assert_close(more["shallow_masked"], shallow.masked.sum())
    torch.testing.assert_close(more["shallow_pair"], shallow.pair.sum())
    torch.testing.assert_close(more["shallow_soft"], (p * (p / q).log()).sum())


def test_the_deep_answer_learns_nothing_from_the_shallow_one(small, shards):
    """As a teacher it stands still: with soft targets alone, only the shallow states have a gradient."""
    stream = Stream(str(shards), DataConfig().examples(32), 6)
    batch, _ = take(stream.examples(), stream, START)
    micro = replace(to_micro(pack(batch, 32, 0, False), torch.device("cpu")), depth=4)
    network = build(small(vocab_size=300), [HeadConfig(kind="mlm"), HeadConfig(kind="pair")], seed=1)
    every = terms(DialConfig(depths=(4,), weight=0.0))  # as deep as the network: the two answers are one
    objective = build_objective(network, torch.float64, False, False, lambda net: Dialled(net, every)).train()
    objective(micro).more.sum().backward()
    assert all(each.grad is None or each.grad.abs().max() < 1e-12 for each in network.parameters())


def test_every_depth_is_drawn_and_a_step_always_draws_the_same():
    config = DialConfig(depths=(1, 2, 3))
    depths = [drawn(config, 7, step) for step in range(300)]
    assert depths == [drawn(config, 7, step) for step in range(300)]
    assert depths != [drawn(config, 8, step) for step in range(300)]
    assert all(70 < depths.count(depth) < 130 for depth in (1, 2, 3))
    assert drawn(DialConfig(), 7, 1) == 0


def test_shallow_answers_come_to_agree_with_the_deep_one_and_each_is_scored(train):
    wide = {"model": {"init_std": 0.4}, "run": {"steps": 60, "log_every": 10}}
    _, told = train(**wide, dial=DIAL)
    lines = [line for line in told if line["kind"] == "train"]
    assert lines[-1]["shallow_soft_loss"] < lines[0]["shallow_soft_loss"] / 3
    assert lines[-1]["shallow_masked_loss"] < lines[0]["shallow_masked_loss"]
    assert "shallow_pair_loss" in lines[-1]
    final = next(line for line in told if line["kind"] == "final")
    assert set(final["depths"]) == {"1", "2"}
    assert (
        final["depths"]["1"]["masked_loss"] != final["depths"]["2"]["masked_loss"] != final["protocol"]["masked_loss"]
    )
    assert "1 passes: masked" in as_text(final)
    assert "shallow soft loss" in as_text(lines[-1])
    _, told = train(**wide)
    assert "depths" not in next(line for line in told if line["kind"] == "final")


def test_every_switch_changes_what_is_learned(train):
    plain, _ = train(dial=DIAL)
    for changed in ({}, {"depths": [3]}, {**DIAL, "weight": 0.0}, {**DIAL, "soft": 0.0}):
        other, _ = train(dial=changed)
        assert not same(weights(plain), weights(other)), changed


def test_stopped_and_resumed_equals_never_stopped(train, interrupted):
    whole, _ = train(dial=DIAL)
    half = whole.parent / "half"
    interrupted(module, "soft_targets", 7, lambda: train(folder=half, dial=DIAL))
    again, _ = train(folder=half, resume=True, dial=DIAL)
    assert same(weights(whole), weights(again))


def test_split_batches_teach_the_same(train):
    precise = {"precision": "fp64", "steps": 6}
    found = [weights(train(dial=DIAL, run={**precise, "micro_batch": size})[0]) for size in (0, 3)]
    for name, tensor in found[0].items():
        torch.testing.assert_close(tensor.double(), found[1][name].double(), rtol=0, atol=1e-6)


def test_the_shallow_pair_weighs_what_the_phase_says_and_is_left_out_without_pairs(train):
    phase = {"length": 32, "batch": 8, "rate": 0.01}
    found = [weights(train(dial=DIAL, phases=[phase | {"pair_weight": weight}])[0]) for weight in (0.0, 1.0)]
    fresh = weights(train(run={"steps": 1}, phases=[phase | {"rate": 1e-12}])[0])
    head = "heads.pair.out.weight"
    torch.testing.assert_close(found[0][head], fresh[head], rtol=0.2, atol=0)  # nothing but decay
    assert not torch.allclose(found[1][head], fresh[head], rtol=0.2, atol=0)
    _, told = train(dial=DIAL, data={"objective": "mlm"})
    assert not any("shallow_pair_loss" in line for line in told)


def test_what_cannot_be_dialled_is_one_line(train):
    for settings, sentence in (
        ({"dial": {"depths": [4]}}, "dial.depths = [4] must be below the 4 passes that are made"),
        ({"dial": {"depths": [0]}}, "depths = [0] must be at least 1"),
        ({"dial": DIAL, "model": {"sharing": "none"}}, "layers are all the same one"),
        ({"dial": {**DIAL, "weight": 0.0, "soft": 0.0}}, "would learn nothing"),
        ({"dial": {**DIAL, "soft": -1.0}}, "must not be below 0"),
    ):
        with pytest.raises(UserError, match=re.escape(sentence)):
            train(**settings)
