"""Sharing is a plan: every plan computes what its unshared copy computes, and its gradients are the copies' sums."""

import pytest
import torch

from litebert.config import HeadConfig, UserError
from litebert.model.encoder import sharing_plan
from litebert.model.packing import pack
from litebert.model.published import unshare
from litebert.model.weights import build, fill

PLANS = [
    (sharing, groups, inner)
    for sharing in ("none", "attention", "ffn", "all")
    for groups in ((1,) if sharing == "none" else (1, 2, 3, 6))
    for inner in (1, 2)
]


@pytest.mark.parametrize(("sharing", "groups", "inner"), PLANS)
def test_a_shared_trunk_equals_its_copies_and_its_gradients_are_their_sums(sharing, groups, inner, small, ragged):
    config = small(layers=6, sharing=sharing, groups=groups, inner_groups=inner)
    shared = build(config, [HeadConfig(kind="mlm")], seed=7).double()
    wide, state = unshare(config, dict(shared.state_dict()))
    copies = fill(wide, shared.head_configs, state, "the copy")
    outputs = [network(*ragged)["mlm"] for network in (shared, copies)]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-12)
    for output in outputs:
        output[ragged[1].bool()].pow(3).mean().backward()
    theirs = {name: parameter.grad for name, parameter in copies.named_parameters()}
    sums: dict[str, torch.Tensor] = {}
    plan = shared.encoder.trunk.plan
    for layer, (a, f) in enumerate(plan):
        for part, index in (("attention", a), ("ffn", f)):
            for name, gradient in theirs.items():
                stem = f"encoder.trunk.{part}.{layer}."
                if name.startswith(stem):
                    ours = f"encoder.trunk.{part}.{index}.{name.removeprefix(stem)}"
                    sums[ours] = sums.get(ours, 0) + gradient
    for name, parameter in shared.named_parameters():
        if parameter.grad is not None:
            expected = sums[name] if name.startswith("encoder.trunk.") else theirs[name]
            torch.testing.assert_close(parameter.grad, expected, rtol=1e-9, atol=1e-12)
    assert sums


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("sharing", "groups", "inner"), PLANS)
def test_finishing_only_the_pieces_that_are_read_changes_neither_them_nor_a_gradient(
    sharing, groups, inner, packed, small, ragged, monkeypatch
):
    config = small(layers=6, sharing=sharing, groups=groups, inner_groups=inner)
    network = build(config, [HeadConfig(kind="mlm")], seed=7).double()
    encoder, (ids, mask) = network.encoder, ragged
    row, boundaries = pack(ids, mask)
    inputs = {"input_ids": row, "boundaries": boundaries} if packed else {"input_ids": ids, "attention_mask": mask}
    places = torch.tensor([3, 0, 14])
    finished: list[int] = []
    last = encoder.trunk.ffn[encoder.trunk.plan[-1][1]]
    monkeypatch.setattr(last, "up", Noting(last.up, finished))
    found = []
    for states in (encoder(**inputs).flatten(0, -2)[places], encoder.states_at(places, **inputs)):
        network.zero_grad()
        states.pow(3).sum().backward()
        found.append((states.detach(), {name: each.grad for name, each in encoder.named_parameters()}))
    (whole, theirs), (few, ours) = found
    torch.testing.assert_close(few, whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    assert finished[-1] == 3 < finished[0]


class Noting(torch.nn.Module):
    """A layer, and how many pieces went through it each time."""

    def __init__(self, layer: torch.nn.Module, counts: list[int]) -> None:
        super().__init__()
        self.layer, self.counts = layer, counts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.counts.append(x[..., 0].numel())
        return self.layer(x)


@pytest.mark.parametrize("layers", [1, 2, 5, 12, 22])
@pytest.mark.parametrize("sharing", ["attention", "ffn", "all"])
def test_each_group_serves_consecutive_layers_as_evenly_as_can_be(layers, sharing):
    for groups in range(1, layers + 1):
        plan = sharing_plan(layers, sharing, groups)
        shared = [a if sharing != "ffn" else f for a, f in plan]
        assert shared == sorted(shared)
        sizes = [shared.count(group) for group in range(groups)]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 1


def test_a_fully_shared_trunk_costs_one_layer_at_any_depth(small):
    counts = {
        depth: sum(p.numel() for p in build(small(layers=depth)).encoder.trunk.parameters()) for depth in (1, 6, 24)
    }
    assert len(set(counts.values())) == 1


@pytest.mark.parametrize(("sharing", "groups", "inner"), PLANS)
def test_no_weight_appears_twice_in_a_state_dict(sharing, groups, inner, small):
    network = build(small(layers=6, sharing=sharing, groups=groups, inner_groups=inner), [HeadConfig(kind="mlm")])
    state = network.state_dict()
    assert len({tensor.data_ptr() for tensor in state.values()}) == len(state)
    assert set(state) == {name for name, _ in network.named_parameters(remove_duplicate=False)}


@pytest.mark.parametrize("inner", [1, 2])
@pytest.mark.parametrize("passes", [1, 3, 9])
def test_passes_at_call_time_equal_a_trunk_built_that_deep(inner, passes, small, ragged):
    network = build(small(layers=4, inner_groups=inner), seed=1).eval()
    deep = build(small(layers=passes, inner_groups=inner), seed=1).eval()
    torch.testing.assert_close(network.encoder(*ragged, passes=passes), deep.encoder(*ragged), rtol=0, atol=0)
    assert len(network.encoder.hidden_states(*ragged, passes=passes)) == passes * inner + 1


@pytest.mark.parametrize("more", [{"sharing": "none"}, {"groups": 2}, {"sharing": "ffn"}])
def test_passes_are_refused_where_layers_differ(more, small, ragged):
    with pytest.raises(UserError, match="passes = 2 needs a trunk whose layers are all the same one"):
        build(small(**more)).encoder(*ragged, passes=2)


def test_zero_passes_are_refused(small, ragged):
    with pytest.raises(UserError, match="passes = 0 must be at least 1"):
        build(small()).encoder(*ragged, passes=0)
