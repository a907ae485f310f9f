"""LAMB and clipping against references written from the formulas, in float64."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from litebert.config import HeadConfig, UserError
from litebert.model.weights import build
from litebert.recipe import OptimizerConfig
from litebert.train.optim import Lamb, build_optimizer, clip_gradients, orthogonal, parameter_groups

LR, DECAY, FIRST, SECOND, EPS = 0.01, 0.01, 0.9, 0.999, 1e-6
MUON = {"momentum": 0.95, "rms": 0.2}


def reference(weights, gradients, adapted, steps_lr):
    """One tensor, as the paper and the released code have it, in NumPy."""
    w, m, v = weights.copy(), np.zeros_like(weights), np.zeros_like(weights)
    for g, lr in zip(gradients, steps_lr, strict=True):
        m = FIRST * m + (1 - FIRST) * g
        v = SECOND * v + (1 - SECOND) * g * g
        update = m / (np.sqrt(v) + EPS)
        ratio = 1.0
        if adapted:
            update = update + DECAY * w
            size, stride = np.linalg.norm(w), np.linalg.norm(update)
            ratio = size / stride if size > 0 and stride > 0 else 1.0
        w = w - lr * ratio * update
    return w


def test_lamb_equals_the_formula_over_a_hundred_steps_exclusions_and_clip_included(small):
    network = build(small(layers=2), [HeadConfig(kind="mlm"), HeadConfig(kind="pair")], seed=1).double()
    start = {name: parameter.detach().numpy().copy() for name, parameter in network.named_parameters()}
    optimizer = Lamb(parameter_groups(network, DECAY), LR, (FIRST, SECOND), EPS)
    rng = np.random.default_rng(0)
    history = {name: [] for name in start}
    rates = [LR * min((step + 1) / 10, (100 - step) / 90) for step in range(100)]
    for step in range(100):
        raw = {name: rng.normal(size=value.shape) * 0.1 for name, value in start.items()}
        norm = np.sqrt(sum((g**2).sum() for g in raw.values()))
        for name, parameter in network.named_parameters():
            parameter.grad = torch.from_numpy(raw[name].copy())
            history[name].append(raw[name] * min(1.0, 1.0 / norm))
        assert clip_gradients(network.parameters(), 1.0)[0].item() == pytest.approx(norm)
        for group in optimizer.param_groups:
            group["lr"] = rates[step]
        optimizer.step()
    for name, parameter in network.named_parameters():
        adapted = parameter.dim() == 2
        blocks = 3 if name.endswith("qkv.weight") else 1
        parts = [
            reference(*rows, adapted, rates)
            for rows in zip(
                np.split(start[name], blocks),
                zip(*(np.split(g, blocks) for g in history[name]), strict=True),
                strict=True,
            )
        ]
        assert np.abs(np.concatenate(parts) - parameter.detach().numpy()).max() < 1e-12, name


def test_a_tensor_of_zeros_takes_the_plain_step():
    weight = torch.nn.Parameter(torch.zeros(3, 4))
    optimizer = Lamb([{"params": [weight]}], LR)
    weight.grad = torch.ones(3, 4)
    optimizer.step()
    expected = -LR * (1 - FIRST) / ((1 - SECOND) ** 0.5 + EPS)
    torch.testing.assert_close(weight.detach(), torch.full((3, 4), expected))


def test_groups_hold_every_parameter_once_and_norms_and_biases_apart(small):
    network = build(small("bert"), [HeadConfig(kind="mlm")])
    network.encoder.embeddings.words.weight.requires_grad_(False)
    groups = parameter_groups(network, 0.1)
    held = [id(parameter) for group in groups for parameter in group["params"]]
    wanted = [id(parameter) for parameter in network.parameters() if parameter.requires_grad]
    assert sorted(held) == sorted(wanted)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    for group in groups:
        for parameter in group["params"]:
            apart = "norm" in names[id(parameter)] or names[id(parameter)].endswith("bias")
            assert (group["weight_decay"] == 0.0) == apart
            assert group["adapt"] != apart
            assert (group.get("blocks", 1) == 3) == names[id(parameter)].endswith("qkv.weight")


def test_clipping_leaves_small_gradients_alone_and_refuses_none():
    parameter = torch.nn.Parameter(torch.ones(4))
    parameter.grad = torch.full((4,), 0.1)
    assert clip_gradients([parameter], 1.0)[0].item() == pytest.approx(0.2)
    assert torch.equal(parameter.grad, torch.full((4,), 0.1))
    parameter.grad = torch.full((4,), 10.0)
    clip_gradients([parameter], 1.0)
    assert parameter.grad.norm().item() == pytest.approx(1.0)
    with pytest.raises(UserError, match="there is no gradient to clip"):
        clip_gradients([torch.nn.Parameter(torch.ones(1))], 1.0)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf"), 3e38])
@pytest.mark.parametrize("kind", ["lamb", "adamw", "muon"])
@pytest.mark.parametrize("correct_bias", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_a_gradient_that_is_not_finite_changes_nothing(broken, kind, correct_bias, first):
    torch.manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(6, 4)), torch.nn.Parameter(torch.randn(3))]
    group = {"adapt": kind == "lamb", "weight_decay": 0.1}
    groups = [{"params": weights[:1], "muon": kind == "muon", **MUON} | group, {"params": weights[1:]} | group]
    optimizer = Lamb(groups, LR, correct_bias=correct_bias)

    def step(value):
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        weights[1].grad[1] = value
        norm, finite = clip_gradients(weights, 1.0)
        optimizer.step(take=finite)
        return norm, finite

    if not first:
        assert step(1.0)[1] == 1
    kept = [(weight, name) for weight in weights for name in (["m"] if weight.dim() == 2 and kind == "muon" else "mv")]
    moments = [optimizer.state[weight].get(name) for weight, name in kept]
    before = [each.detach().clone() for each in weights]
    before += [torch.zeros(1) if each is None else each.clone() for each in moments]
    norm, finite = step(broken)
    assert finite == 0
    assert not torch.isfinite(norm)
    after = [*weights, *(optimizer.state[weight][name] for weight, name in kept)]
    assert all((old == new).all() for old, new in zip(before, after, strict=True))
    assert step(1.0)[1] == 1
    assert all(torch.isfinite(weight).all() for weight in weights)
    assert not torch.equal(before[0], weights[0])


def test_the_compiler_stays_out_of_it():
    """What every `torch.optim.Optimizer` imports when it is made takes seconds of each start."""
    made = "w = torch.nn.Parameter(torch.ones(2)); optimizer = Lamb([{'params': [w]}], 0.1); w.grad = torch.ones(2)"
    code = f"import sys, torch; from litebert.train.optim import Lamb; {made}; optimizer.step(); optimizer.zero_grad()"
    found = subprocess.run(
        [sys.executable, "-c", f"{code}; print(w.grad, 'torch._dynamo' in sys.modules)"], capture_output=True
    )
    assert found.stdout.decode().strip() == "None False"


def test_without_adaptation_and_with_bias_correction_it_is_adamw():
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(5, 3, dtype=torch.float64)) for _ in range(2)]
    theirs = [torch.nn.Parameter(weight.detach().clone()) for weight in ours]
    mine = Lamb([{"params": ours, "adapt": False, "weight_decay": 0.1}], LR, (0.9, 0.98), 1e-6, correct_bias=True)
    peer = torch.optim.AdamW(theirs, LR, (0.9, 0.98), 1e-6, weight_decay=0.1)
    for _ in range(50):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        mine.step()
        peer.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(24, 24), (24, 96)])
def test_what_muon_makes_orthogonal_keeps_its_directions_and_evens_their_lengths(shape):
    torch.manual_seed(0)
    left, _, right = torch.linalg.svd(torch.randn(2, *shape, dtype=torch.float64), full_matrices=False)
    lengths = torch.logspace(0, -2, 24, dtype=torch.float64)  # the longest a hundred times as long as the shortest
    made = orthogonal(left @ torch.diag_embed(lengths.expand(2, -1)) @ right)
    seen = left.mT @ made @ right.mT
    found = torch.diagonal(seen, dim1=-2, dim2=-1)
    assert 0.5 < found.min() < found.max() < 1.3
    assert (seen - torch.diag_embed(found)).abs().max() < 1e-12


def test_muon_is_pytorchs_on_the_matrices_between_states_and_adamw_elsewhere(small):
    """Theirs multiplies in bf16; query, key and value are a matrix each."""
    network = build(small(layers=2), [HeadConfig(kind="mlm")], seed=1)
    before = {name: weight.detach().clone() for name, weight in network.named_parameters()}
    config = OptimizerConfig(kind="muon", weight_decay=0.1, betas=(0.9, 0.98), correct_bias=True, momentum=0.9)
    mine = build_optimizer(network, config)
    for group in mine.param_groups:
        group["lr"].fill_(LR)
    theirs = {name: [each.clone() for each in _parts(name, weight)] for name, weight in before.items()}
    matrices = [part for name, parts in theirs.items() if _between_states(name, before[name]) for part in parts]
    decayed, plain = (
        [
            part
            for name, parts in theirs.items()
            if not _between_states(name, before[name]) and (before[name].dim() == 2) == two
            for part in parts
        ]
        for two in (True, False)
    )
    assert len(matrices) == 9  # q, k, v, out, up, down; into the trunk, and out of it for pairs and for pieces
    peers = [
        torch.optim.Muon(matrices, LR, weight_decay=0.1, momentum=0.9, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(decayed, LR, (0.9, 0.98), 1e-6, weight_decay=0.1),
        torch.optim.AdamW(plain, LR, (0.9, 0.98), 1e-6, weight_decay=0.0),
    ]
    for _ in range(10):
        for name, weight in network.named_parameters():
            weight.grad = torch.randn_like(weight)
            for part, gradient in zip(theirs[name], _parts(name, weight.grad), strict=True):
                part.grad = gradient.clone()
        mine.step()
        for peer in peers:
            peer.step()
    for name, weight in network.named_parameters():
        moved, peers_moved = weight.detach() - before[name], torch.cat(theirs[name]) - before[name]
        tolerance = 0.02 if _between_states(name, weight) else 1e-5
        assert (moved - peers_moved).norm() < tolerance * peers_moved.norm(), name


@pytest.mark.parametrize("kind", ["adamw", "lamb", "muon"])
def test_tables_may_go_faster_than_the_rest(kind, small):
    """One step from the same weights and gradients: three times as far, in the word, position and type tables alone."""
    moved = {}
    for tables in (1.0, 3.0):
        network = build(small(layers=2), [HeadConfig(kind="mlm"), HeadConfig(kind="pair")], seed=1).double()
        before = {name: weight.detach().clone() for name, weight in network.named_parameters()}
        optimizer = build_optimizer(network, OptimizerConfig(kind=kind, tables=tables))
        for group in optimizer.param_groups:
            group["lr"].fill_(LR * group["scale"])
        for number, weight in enumerate(network.parameters()):
            generator = torch.Generator().manual_seed(number)
            weight.grad = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
        optimizer.step()
        moved[tables] = {name: weight.detach() - before[name] for name, weight in network.named_parameters()}
    tables = {name for name in before if "embeddings" in name and before[name].dim() == 2 and "project" not in name}
    assert len(tables) == 3
    for name in before:
        torch.testing.assert_close(moved[3.0][name], moved[1.0][name] * (3 if name in tables else 1))


def _between_states(name, weight):
    told = ("embeddings.project.weight", "pooler.weight", "mlm.dense.weight")
    return weight.dim() == 2 and (".trunk." in name or name.endswith(told))


def _parts(name, weight):
    return weight.chunk(3) if name.endswith("qkv.weight") else [weight]
