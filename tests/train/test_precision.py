"""What flows may be bf16; weights, their gradients and the losses are not."""

import re
from dataclasses import replace

import pytest
import torch

from litebert.config import HeadConfig, ModelConfig
from litebert.model.heads import Network
from litebert.model.weights import build
from litebert.recipe import TuneConfig
from litebert.train import peak
from litebert.train.growth import grown
from litebert.train.objective import build_objective
from litebert.train.trainee import quicker


def gradient(network, precision, ids):
    """The gradient of a smooth function of the states, in the weights' own type."""
    network.encoder.embeddings.compute = precision
    network.zero_grad()
    states = network.encoder(ids)
    target = torch.randn(states.shape, generator=torch.Generator().manual_seed(2)).to(states.device)
    (states.float() - target).pow(2).mean().backward()
    return network.encoder.trunk


def flat(trunk):
    assert {parameter.grad.dtype for parameter in trunk.parameters()} == {torch.float32}
    return torch.cat([parameter.grad.double().flatten() for parameter in trunk.parameters()])


def networks(device="cpu"):
    """24 layers that share, and 24 with the same weights that do not; and something to read."""
    shared = ModelConfig(
        vocab_size=200, embedding_size=32, hidden_size=64, ffn_size=128, layers=24, heads=4, positions=32, init_std=0.05
    )
    one = build(shared, [], seed=3)
    many = Network(replace(shared, sharing="none"))
    state = one.state_dict()
    many.load_state_dict({name: state[re.sub(r"\d+", "0", name)] for name in many.state_dict()})
    ids = torch.randint(5, 200, (8, 32), generator=torch.Generator().manual_seed(1))
    return one.to(device), many.to(device), ids.to(device)


def relative_errors(device="cpu"):
    """Of the bf16 gradient of 24 layers against float32: shared, and not shared."""
    *both, ids = networks(device)
    errors = []
    for network in both:
        exact, rough = (flat(gradient(network, precision, ids)) for precision in (torch.float32, torch.bfloat16))
        errors.append(((rough - exact).norm() / exact.norm()).item())
    return errors


def test_the_bf16_gradient_of_a_shared_trunk_is_about_as_good_as_that_of_an_unshared_one():
    shared, unshared = relative_errors()
    assert 0 < shared < 1.5 * unshared
    assert shared < 0.02


def test_a_shared_weights_gradient_is_the_float32_sum_of_its_uses():
    """Both compute the same in bf16; added up in bf16 the sums would be a few thousandths apart."""
    one, many, ids = networks()
    shared, unshared = (gradient(network, torch.bfloat16, ids) for network in (one, many))
    for name, parameter in shared.named_parameters():
        kind, _, leaf = name.split(".", 2)
        uses = [
            use.grad.double() for other, use in unshared.named_parameters() if re.match(rf"{kind}\.\d+\.{leaf}$", other)
        ]
        assert len(uses) == 24
        whole = torch.stack(uses).sum(0)
        assert (parameter.grad.double() - whole).norm() <= 1e-5 * torch.stack(uses).norm(), name


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_a_shared_weights_gradient_is_not_summed_in_bf16(capsys):
    shared, unshared = relative_errors("cuda")
    with capsys.disabled():
        print(f"\nbf16 gradient of 24 layers, relative error: shared {shared:.4f}, not shared {unshared:.4f}")
    assert shared < 1.5 * unshared


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32, torch.float64])
def test_losses_and_weights_are_float32_or_wider(precision, small):
    network = build(small(), [HeadConfig(kind="mlm"), HeadConfig(kind="pair")])
    objective = build_objective(network, precision, False, False)
    wide = torch.promote_types(precision, torch.float32)
    assert {parameter.dtype for parameter in objective.parameters()} == {wide}
    states = network.encoder(torch.ones(2, 5, dtype=torch.long))
    assert states.dtype == precision
    loss, right = objective.masked_loss(
        network.heads["mlm"],
        states[0, 1:3],
        network.encoder.embeddings.words.weight,
        torch.tensor([3, 4]),
    )
    assert loss.dtype == right.dtype == wide


def test_growing_a_state_copies_and_never_aliases(small):
    old, new = small("bert", layers=2), small("bert", layers=4)
    state = dict(build(old, seed=1).state_dict())
    found = grown(state, old, new)
    third, first = (found[f"encoder.trunk.ffn.{number}.up.weight"] for number in (2, 0))
    assert torch.equal(third, first)
    third += 1
    assert not torch.equal(third, first)
    assert set(found) == set(Network(new).state_dict())


def test_a_cpu_that_has_no_way_with_a_precision_is_not_measured_for_a_minute(monkeypatch):
    asked = []

    def rate(device, precision, size, repeats):
        asked.append(size)
        return 1e9 if precision == torch.bfloat16 else 1e12

    monkeypatch.setattr(peak, "product_rate", rate)
    assert peak.peak_rate(torch.device("cpu"), torch.bfloat16) == 1e9
    assert asked == [peak.SMALL]
    assert peak.peak_rate(torch.device("cpu"), torch.float32) == 1e12
    assert asked == [peak.SMALL, peak.SMALL, 768]
    peak.known_peak.cache_clear()
    for _ in range(2):
        assert peak.known_peak(torch.device("cpu"), torch.float32) == 1e12
    assert len(asked) == 5, "once"
    peak.known_peak.cache_clear()  # it was not the machine's


@pytest.mark.parametrize(
    ("chosen", "able", "told"),
    [("auto", True, True), ("auto", False, False), ("fp32", True, False), ("bf16", True, False)],
)
def test_whoever_fine_tunes_on_a_cpu_that_multiplies_in_bf16_is_told(chosen, able, told, monkeypatch):
    monkeypatch.setattr("litebert.train.trainee.gains_by_bf16", lambda: able)
    notes = quicker(TuneConfig(precision=chosen), torch.device("cpu"))
    assert ["tune.precision=bf16" in note for note in notes] == [True] * told
    assert quicker(TuneConfig(precision=chosen), torch.device("cuda")) == ()
