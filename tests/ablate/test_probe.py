"""A head on frozen states: it learns what is there, says chance where nothing is, and leaves the encoder alone."""

import numpy as np
import pytest
import torch

from litebert.ablate import probe
from litebert.ablate.probe import STRENGTHS, fit, logistic, pair_vectors, probe_pairs, read_states
from litebert.config import HeadConfig, ModelConfig
from litebert.corpus.batches import START, Stream, take
from litebert.corpus.pack import pack
from litebert.infer.model import Model
from litebert.model.weights import build
from litebert.recipe import DataConfig
from litebert.train.feed import to_micro
from litebert.train.heldout import SEED, protocol

CPU = torch.device("cpu")


@pytest.fixture
def model():
    sizes = {"embedding_size": 16, "hidden_size": 32, "ffn_size": 64, "layers": 2, "heads": 4, "positions": 64}
    config = ModelConfig(vocab_size=1000, init_std=0.2, **sizes)
    return Model(network=build(config, (HeadConfig(kind="mlm"),), seed=0), tokenizer=None)


@pytest.mark.parametrize("fill", [False, True])
def test_a_vector_is_the_first_state_and_the_mean_of_either_text(model, text, fill):
    config = protocol(DataConfig(objective="nsp"), 64)
    stream = Stream(str(text / "shards"), config, 7, SEED)
    batch, _ = take(stream.examples(), stream, START)
    micro = to_micro(pack(batch, 64, 0, fill), CPU)
    with torch.no_grad():
        states = torch.randn(len(micro.input_ids), 32, generator=torch.Generator().manual_seed(0))
        found = pair_vectors(states, micro)
    assert found.shape == (7, 96)
    offsets = np.append(0, np.cumsum(batch.lengths))
    order = micro.boundaries.offsets[:8].tolist()  # packing may put whole rows first
    assert sorted(np.diff(order)) == sorted(np.diff(offsets))
    for row in range(7):
        mine = states[order[row] : order[row + 1]]
        types = micro.token_type_ids[order[row] : order[row + 1]]
        by_hand = torch.cat([mine[0], mine[types == 0].mean(0), mine[types == 1].mean(0)])
        assert torch.allclose(found[row], by_hand, atol=1e-6)


def test_a_linear_head_finds_what_is_there_and_nothing_where_nothing_is():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(1200, 40, generator=generator)
    labels = (x[:, 3] - 2 * x[:, 7] > 0).long()
    head, _ = fit(x[:1000], labels[:1000])
    assert (head(x[1000:]) == labels[1000:]).double().mean() > 0.95
    luck = torch.randint(0, 2, (1200,), generator=generator)
    head, _ = fit(x[:1000], luck[:1000])
    assert abs(float((head(x[1000:]) == luck[1000:]).double().mean()) - 0.5) < 0.12


def test_a_penalty_is_chosen_where_vectors_outnumber_examples():
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(400, 300, generator=generator)
    labels = (x[:, 0] + 0.5 * torch.randn(400, generator=generator) > 0).long()
    _, strength = fit(x[:150], labels[:150])
    assert strength > min(probe.STRENGTHS)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_the_least_loss_is_found_in_few_rounds_though_vectors_are_nearly_alike(strength, monkeypatch):
    monkeypatch.setattr(probe, "ROUNDS", 30)
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(800, 60, generator=drawn) @ (torch.randn(60, 60, generator=drawn) * torch.logspace(0, -3, 60))
    x = (x - x.mean(0)) / x.std(0)
    labels = (torch.rand(800, generator=drawn) < torch.sigmoid(x[:, 0] + x[:, 1])).long()
    weight, bias = logistic(x, labels, strength, torch.linalg.eigh(x.T @ x / 3200))
    wrong = torch.sigmoid(x.double() @ weight.double() + bias) - labels
    slope = x.double().T @ wrong / len(x) + strength * weight
    assert slope.abs().max() < 2e-4
    assert wrong.mean().abs() < 2e-4


def test_it_learns_from_the_train_part_and_is_scored_on_the_held_out_one(model, text, monkeypatch):
    read, before = [], [each.clone() for each in model.network.parameters()]

    def reads(network, shards, config, wanted, part, device):
        read.append((part, config.objective, wanted))
        return read_states(network, shards, config, wanted, part, device)

    monkeypatch.setattr(probe, "read_states", reads)
    found = probe_pairs(model, str(text / "shards"), "nsp", 64, 96, CPU)
    assert read == [("train", "nsp", 64), ("held-out", "nsp", 96)]
    assert (found["pairs"], found["examples"]) == (64, 96)
    assert 0.0 <= found["value"] <= 1.0
    share = found["value"]
    assert found["error"] >= (share * (1 - share) / 96) ** 0.5 - 1e-12
    assert all(torch.equal(old, new) for old, new in zip(before, model.network.parameters(), strict=True))


def test_labels_come_in_halves(model, text):
    """A head that always says the same is at chance."""
    config = protocol(DataConfig(objective="sop"), 64)
    vectors, labels, once = read_states(model.network, str(text / "shards"), config, 200, "train", CPU)
    assert vectors.shape == (200, 96)
    assert once > 200
    assert abs(float(labels.double().mean()) - 0.5) < 0.15
