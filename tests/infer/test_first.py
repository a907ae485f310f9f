"""int8 gives the first piece of a text steps of its own; where it is far from the others, answers are nearer."""

import pytest
import torch

import litebert
from litebert.config import HeadConfig
from litebert.export.onnx import write_network
from litebert.infer.first import Factors, ends_of, factors, middle, stretch
from litebert.infer.loop import open_session
from litebert.infer.quick import Apart, first_rows, packed, quicken
from litebert.model.packing import Boundaries, pack
from litebert.model.weights import build
from tests.conftest import FAMILIES

ENDS = (2, 3)


def loud(config):
    """A network in which one neuron of each feed-forward shouts at the first piece alone."""
    network = build(config, [HeadConfig(kind="classify", labels=("a", "b"))], 0).eval()
    encoder, met = network.encoder, set()
    ids = torch.randint(5, 50, (8, 9), generator=torch.Generator().manual_seed(5))
    ids[:, 0], ids[:, -1] = ENDS
    with torch.no_grad():
        x, mask = encoder.embed(ids, None, None, None)
        for a, f in encoder.trunk.plan:
            x = encoder.trunk.attention[a](x, mask)
            way = x[:, 0].mean(0) - x[:, 1:].mean((0, 1))
            if f not in met:
                encoder.trunk.ffn[f].up.weight[0] = 30 * way / way.norm() ** 2
            met.add(f)
            x = encoder.trunk.ffn[f](x)
    return network


def test_a_stretch_makes_the_first_piece_reach_as_far_as_the_others():
    x = torch.randn(3, 5, 8)
    assert stretch(x * torch.tensor([0.5, 1, 1, 1, 1])[:, None]) > stretch(x)
    x = torch.ones(2, 4, 3)
    x[:, 0] = 4.0
    assert stretch(x) == 0.25
    x[:, 0] = 1e-6
    assert stretch(x) == 16.0
    assert stretch(x[:, :1]) == stretch(torch.zeros(2, 4, 3)) == 1.0
    assert middle([0.5, 2.0]) == middle([1.2]) == middle([]) == 1.0
    assert middle([4.0, 16.0]) == pytest.approx(8.0)


def test_without_known_ends_nothing_is_apart(small):
    network = loud(small("albert", layers=1))
    assert factors(network.encoder, None) == factors(network.encoder, (2, 10**6)) == Factors((1.0,), (1.0,))
    assert factors(network.train().encoder, ENDS).ffn != (1.0,)
    assert network.training
    assert ends_of(None) is None
    assert ends_of(litebert.load("litebert-base").tokenizer) == (2, 3)


@pytest.mark.parametrize("bias", [True, False])
def test_a_product_apart_is_the_product_and_leaves_what_it_was_given(bias):
    torch.manual_seed(0)
    layer = torch.nn.Linear(32, 16, bias=bias)
    x = torch.randn(10, 32)
    x[[0, 4]] *= 40
    rows, before = torch.tensor([0, 4]), x.clone()
    with torch.no_grad():
        exact = layer(x)
        alike, apart = (Apart(packed(layer, "int8"), layer, factor)(x, rows) for factor in (1.0, 1 / 40))
    assert torch.equal(x, before)
    others = [1, 2, 3, 5, 6, 7, 8, 9]
    errors = [(each - exact).abs() for each in (alike, apart)]
    assert errors[1][others].mean() < errors[0][others].mean() / 8
    assert errors[1][rows].mean() < 2 * errors[0][rows].mean()


def test_where_texts_begin():
    assert first_rows(torch.zeros(3, 5, 2), None).tolist() == [0, 5, 10]
    assert first_rows(torch.zeros(9, 2), Boundaries.of([4, 2, 3])).tolist() == [0, 4, 6]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_way_of_int8_minds_it(family, small):
    pytest.importorskip("onnxruntime", reason="pip install 'litebert[onnx]'")
    network = loud(small(family, layers=1))
    assert factors(network.encoder, ENDS).ffn[0] < 0.8
    ids = torch.randint(5, 50, (4, 9), generator=torch.Generator().manual_seed(1))
    ids[:, 0], ids[:, -1] = ENDS
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    row, boundaries = pack(ids, mask)
    errors = []
    with torch.no_grad():
        exact, uneven = network.encoder(ids), network.encoder(row, boundaries=boundaries)
        for ends in (None, ENDS):
            quick = quicken(loud(small(family, layers=1)), "int8", ends)
            graph = open_session(write_network(without_heads(loud(small(family, layers=1))), False, True, ends), 1)
            given = {each.name: torch.zeros_like(ids).numpy() for each in graph.get_inputs()}
            given |= {"input_ids": ids.numpy(), "attention_mask": torch.ones_like(ids).numpy()}
            found = torch.from_numpy(graph.run(None, given)[0])
            ways = [(quick.encoder(ids), exact), (quick.encoder(row, boundaries=boundaries), uneven), (found, exact)]
            errors.append([float((made - right).norm() / right.norm()) for made, right in ways])
    for alike, apart in zip(*errors, strict=True):
        assert apart < alike


def without_heads(network):
    for kind in list(network.heads):
        del network.heads[kind]
    return network


def test_the_model_that_ships_is_nearer_by_half():
    pytest.importorskip("onnxruntime", reason="pip install 'litebert[onnx]'")
    model = litebert.load("litebert-base")
    network = model.network.eval().float()
    texts = ["The ship sailed across the sea.", "He had never seen the house, and he did not like it at all."]
    rows = [torch.tensor([2, *ids.tolist(), 3]) for ids in model.tokenizer.ids(texts)]
    alike, apart = (quicken(litebert.load("litebert-base").network, "int8", ends) for ends in (None, ENDS))
    boundaries, row = Boundaries.of([len(each) for each in rows]), torch.cat(rows)
    with torch.no_grad():
        for given in ((row, boundaries), (rows[0], Boundaries.of([len(rows[0])]))):
            exact, far, near = (each.encoder(given[0], boundaries=given[1]).float() for each in (network, alike, apart))
            assert (near - exact).norm() < 0.6 * (far - exact).norm()
