"""A model packed for a CPU answers as the one it was made of, as near as its precision allows; and only answers."""

from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from litebert.cli import app
from litebert.config import HeadConfig, Reading, UserError
from litebert.infer import quick as module
from litebert.infer.cpu import EVERYWHERE, WITH_WHOLE_SUMS, finest, has_bf16
from litebert.infer.graph import Graph
from litebert.infer.loop import FEW, open_session
from litebert.infer.model import Model, load
from litebert.infer.quick import packed, quicken, rounded
from litebert.model.encoder import attention_maps
from litebert.model.packing import Boundaries, pack
from litebert.model.weights import build
from litebert.tasks.example import Task
from litebert.tasks.taught import Taught
from tests.conftest import FAMILIES
from tests.toys import WORDS, toy_model, write_rows

NEAR = {"fp32": 1e-5, "bf16": 0.06, "int8": 0.12}
CAN = [each for each in NEAR if each != "bf16" or has_bf16()]
EACH = [pytest.param(each, marks=pytest.mark.skipif(each not in CAN, reason="this CPU has no bf16")) for each in NEAR]
LABELS = ("bad", "good")
PLANS = [{"sharing": "none"}, {"sharing": "ffn"}, {"groups": 2}, {"activation": "relu"}, {"activation": "silu"}]


def pair(config, seed=0):
    """The same network twice."""
    first, second = (build(config, [HeadConfig(kind="classify", labels=LABELS)], seed).eval() for _ in range(2))
    return first, second


@pytest.mark.parametrize("precision", EACH)
@pytest.mark.parametrize("family", FAMILIES)
def test_it_answers_as_near_as_the_precision_allows(family, precision, small, ragged):
    network, quick = pair(small(family, init_std=0.05))
    quicken(quick, precision)
    ids, mask = ragged
    row, boundaries = pack(ids, mask)
    with torch.no_grad():
        exact = network(ids, mask)["classify"]
        padded = quick(ids, mask)["classify"].float()
        packed = quick(row, boundaries=boundaries)["classify"].float()
    assert (padded - exact).abs().max() < NEAR[precision] * exact.abs().max()
    assert (packed - exact).abs().max() < NEAR[precision] * exact.abs().max()
    if precision != "fp32":
        assert (padded - exact).abs().max() > 1e-6  # it is another arithmetic


@pytest.mark.parametrize("precision", EACH)
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_every_plan_and_activation_has_its_quick_form(plan, precision, small, ragged):
    network, quick = pair(small("albert", init_std=0.05, **plan))
    quicken(quick, precision)
    with torch.no_grad():
        exact, near = (each(*ragged)["classify"].float() for each in (network, quick))
    assert (near - exact).abs().max() < NEAR[precision] * exact.abs().max()


def heard(quick, monkeypatch):
    """How often a network has gone through onnxruntime."""
    pytest.importorskip("onnxruntime", reason="pip install 'litebert[onnx]'")
    calls, looped = [], quick.encoder.looped
    run = looped.session.run
    monkeypatch.setattr(looped, "session", SimpleNamespace(run=lambda *words: calls.append(1) or run(*words)))
    return calls


@pytest.mark.parametrize("precision", ["int8", "fp32"])
@pytest.mark.parametrize("shape", [(1, 7), (3, 10)])
def test_equally_long_sequences_of_a_shared_layer_run_in_onnxruntimes_loop(shape, precision, small, monkeypatch):
    network, quick = pair(small("albert", init_std=0.05))
    calls = heard(quicken(quick, precision), monkeypatch)
    ids = torch.randint(5, 50, shape)
    row, boundaries = pack(ids, torch.ones_like(ids))
    types = torch.arange(len(row)) % 2
    with torch.no_grad():
        for passes, given in ((None, None), (1, types), (6, types)):
            exact, near = (
                each.encoder(row, None, given, boundaries=boundaries, passes=passes) for each in (network, quick)
            )
            assert near.shape == exact.shape
            assert (near - exact).abs().max() < NEAR[precision] * exact.abs().max()
            wide = given if given is None else given.view(shape)
            whole = quick.encoder(ids, None, wide, passes=passes)  # the same sequences, not packed
            torch.testing.assert_close(whole.reshape(near.shape), near)
    assert len(calls) == 6


@pytest.mark.parametrize(("precision", "avx2", "count"), [("int8", True, 3), ("fp32", True, 3), ("int8", False, 0)])
def test_others_run_there_in_parts_of_equal_length_where_avx2_is_the_best(precision, avx2, count, small, monkeypatch):
    monkeypatch.setattr("litebert.infer.loop.has_avx2_only", lambda: avx2)
    network, quick = pair(small("albert", init_std=0.05))
    calls = heard(quicken(quick, precision), monkeypatch)
    sizes = (7, 7, 4, 7)
    row, types = torch.randint(5, 50, (sum(sizes),)), torch.arange(sum(sizes)) % 2
    with torch.no_grad():
        exact, near = (
            each.encoder(row, None, types, boundaries=Boundaries.of(sizes), passes=2) for each in (network, quick)
        )
        assert len(calls) == count
        assert near.shape == exact.shape
        assert (near - exact).abs().max() < NEAR[precision] * exact.abs().max()
        if count:
            alone = quick.encoder(row[14:18], None, types[14:18], boundaries=Boundaries.of([4]), passes=2)
            assert torch.equal(near[14:18], alone)  # of another length than all others: they change nothing
        with_empty = Boundaries.of((7, 7, 0, 4, 7), empty=True)
        again = quick.encoder(row, None, types, boundaries=with_empty, passes=2)
    torch.testing.assert_close(again, near)


@pytest.mark.parametrize(("precision", "avx2", "count"), [("int8", False, 3), ("fp32", False, 2), ("fp32", True, 3)])
def test_float32_goes_through_the_loop_for_few_pieces_but_where_avx2_is_the_best(
    precision, avx2, count, small, monkeypatch
):
    monkeypatch.setattr("litebert.infer.loop.has_avx2_only", lambda: avx2)
    network, quick = pair(small("albert", init_std=0.05))
    calls = heard(quicken(quick, precision), monkeypatch)
    with torch.no_grad():
        for shape in ((1, FEW), (2, FEW // 2), (3, FEW // 2)):
            ids = torch.randint(5, 50, shape)
            exact, near = (each.encoder(ids) for each in (network, quick))
            assert (near - exact).abs().max() < NEAR[precision] * exact.abs().max()
    assert len(calls) == count


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_what_is_amiss_with_a_batch_is_said_as_before(precision, small, monkeypatch):
    quick = pair(small("albert"))[1]
    calls = heard(quicken(quick, precision), monkeypatch)
    most = quick.config.positions
    ids, row = torch.full((1, 4), 7), torch.full((4,), 7)
    for sentence, given, more in (
        (f"{most + 1} pieces does not fit", (torch.full((1, most + 1), 7),), {}),
        ("token_type_ids", (ids, None, torch.zeros(1, 3, dtype=torch.long)), {}),
        ("give \\(batch, length\\)", (row,), {}),
        ("boundaries go with one packed row", (row,), {"boundaries": Boundaries.of([3])}),
        ("passes = 0", (ids,), {"passes": 0}),
    ):
        with pytest.raises(UserError, match=sentence):
            quick.encoder(*given, **more)
    assert not calls


@pytest.mark.parametrize("precision", ["int8", "fp32"])
def test_weights_in_bf16_go_both_ways_in_float32(precision, small, monkeypatch):
    network, quick = (each.to(torch.bfloat16) for each in pair(small("albert", init_std=0.05)))
    network.encoder.embeddings.compute = torch.float32
    calls = heard(quicken(quick, precision), monkeypatch)
    ids = torch.randint(5, 50, (2, 7))
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    with torch.no_grad():
        exact, near, other = network.encoder(ids).float(), quick.encoder(ids), quick.encoder(ids, mask)
    assert near.dtype == other.dtype == torch.float32
    assert len(calls) == 1
    for found, wanted in ((near, exact), (other[:1], exact[:1])):
        assert (found - wanted).abs().max() < NEAR["bf16"] * wanted.abs().max()


def test_in_the_loop_embeddings_are_widened_in_float32(small, monkeypatch):
    """Only a file stores large matrices in 8 bits."""
    pytest.importorskip("onnxruntime", reason="pip install 'litebert[onnx]'")
    monkeypatch.setattr("litebert.infer.graph.LARGE", 1)
    network, quick = pair(small("albert", init_std=0.05))
    graphs, write = [], Graph.write
    monkeypatch.setattr(Graph, "write", lambda self, *words: graphs.append(self) or write(self, *words))
    quicken(quick, "int8")
    kept = graphs[0].weights["embeddings.project.weight"]
    assert np.array_equal(kept, network.encoder.embeddings.project.weight.detach().t().numpy())
    assert "embeddings.project.int8" not in graphs[0].weights


def test_float32_of_a_large_layer_is_not_kept_twice(small, monkeypatch):
    monkeypatch.setattr("litebert.infer.loop.SMALL", 1000)
    assert quicken(pair(small("albert"))[1], "fp32").encoder.looped is None
    if has_bf16():
        assert quicken(pair(small("albert"))[1], "bf16").encoder.looped is None
    if find_spec("onnxruntime"):
        assert quicken(pair(small("albert"))[1], "int8").encoder.looped is not None


class TestWholeSums:
    """Products of a weight and what it meets, both at their largest: a CPU that adds two in 16 bits cuts that off."""

    def test_no_sum_is_cut_off(self):
        layer = torch.nn.Linear(64, 8, bias=False)
        torch.nn.init.constant_(layer.weight, 0.5)
        product = packed(layer, "int8")(torch.full((3, 64), 2.0), None)
        assert torch.allclose(product, torch.full((3, 8), 64.0), rtol=1e-5)

    def test_nor_in_a_file(self):
        pytest.importorskip("onnxruntime", reason="pip install 'litebert[onnx]'")
        layer = torch.nn.Linear(64, 8, bias=False)
        torch.nn.init.constant_(layer.weight, 0.5)
        graph = Graph(int8=True)
        made = graph.linear("layer", layer, "states_x")
        graph.nodes.append(graph.onnx.helper.make_node("Identity", [made], ["y"]))
        assert graph.weights["layer.int8"].max() == EVERYWHERE  # wherever it was written
        session = open_session(graph.write({"states_x": ("rows", 64)}, {"y": ("rows", 8)}))
        said = session.run(None, {"states_x": np.full((3, 64), 2.0, dtype=np.float32)})[0]
        assert np.allclose(said, 64, rtol=1e-5)

    def test_the_steps_are_as_fine_as_the_cpu_allows(self, monkeypatch):
        assert 2 * 255 * EVERYWHERE < 2**15 <= 2 * 255 * WITH_WHOLE_SUMS
        for machine, vnni, wanted in (
            ("x86_64", False, EVERYWHERE),
            ("AMD64", True, WITH_WHOLE_SUMS),
            ("aarch64", False, WITH_WHOLE_SUMS),
        ):
            monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
            monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda vnni=vnni: vnni, raising=False)
            assert finest.__wrapped__() == wanted


def test_a_cpu_without_bf16_says_so(small, monkeypatch):
    monkeypatch.setattr(module, "has_bf16", lambda: False)
    with pytest.raises(UserError, match="bf16' needs a CPU that multiplies it"):
        quicken(pair(small("albert"))[1], "bf16")


def test_without_onnxruntime_int8_goes_layer_by_layer(small, ragged, monkeypatch):
    monkeypatch.setattr("litebert.infer.loop.find_spec", lambda name: None)
    network, quick = pair(small("albert", init_std=0.05))
    quicken(quick, "int8")
    assert quick.encoder.looped is None
    ids = ragged[0][:1]
    with torch.no_grad():
        exact, near = (each(ids)["classify"] for each in (network, quick))
    assert (near - exact).abs().max() < NEAR["int8"] * exact.abs().max()


def test_passes_and_hidden_states_are_as_before(small, ragged):
    network, quick = pair(small("albert"))
    quicken(quick, "fp32")
    with torch.no_grad():
        for passes in (1, 3, 7):
            torch.testing.assert_close(
                network(*ragged, passes=passes), quick(*ragged, passes=passes), rtol=1e-4, atol=1e-5
            )
        states, others = (each.encoder.hidden_states(*ragged) for each in (network, quick))
    assert len(states) == len(others) == 5
    for ours, theirs in zip(states, others, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_rounding_keeps_zero_and_both_ends():
    x = torch.tensor([[-1.0, 0.0, 0.004, 2.0]])
    scale = 3.0 / 255
    assert rounded(x, scale, 85).tolist() == [[0, 85, 85, 255]]
    assert rounded(x.expand(3, 4), scale, 85).tolist() == [[0, 85, 85, 255]] * 3


def test_both_ways_of_rounding_agree(monkeypatch):
    from litebert.infer import quick

    x = torch.randn(64, 48, generator=torch.Generator().manual_seed(0))
    first = rounded(x, 0.03, 120)
    monkeypatch.setattr(quick, "has_quick_rounding", lambda: False)
    second = rounded(x, 0.03, 120)
    assert first.dtype == second.dtype == torch.uint8
    assert (first.int() - second.int()).abs().max() <= 1  # halves go either way
    assert (first != second).float().mean() < 0.01


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("quick")
    model = load(toy_model(where, "albert", layers=3))
    task = Task(kind="classify", labels=LABELS, texts=("review",))
    network = build(
        replace(model.config, init_std=0.05), [HeadConfig(kind="classify", labels=LABELS), HeadConfig(kind="mlm")], 0
    )
    Model(network=network, tokenizer=model.tokenizer, taught=Taught(task, Reading(length=32))).save(where)
    return where


@pytest.mark.parametrize(("precision", "avx2", "count"), [("int8", False, 3), ("int8", True, 5), ("fp32", False, 2)])
def test_a_single_text_goes_through_the_loop_without_what_fills_it_up(folder, precision, avx2, count, monkeypatch):
    monkeypatch.setattr("litebert.infer.loop.has_avx2_only", lambda: avx2)
    plain, quick = load(folder), load(folder, precision=precision)
    calls = heard(quick.network, monkeypatch)
    one, two = " ".join(WORDS[:3]), " ".join(WORDS[:9])
    for texts in ([one], [two, two], [two] * 4, [one, two]):
        for ours, theirs in zip(plain.classify(texts), quick.classify(texts), strict=True):
            assert ours.probabilities == pytest.approx(theirs.probabilities, abs=0.03)
    assert len(calls) == count


@pytest.mark.parametrize("precision", EACH)
def test_loaded_with_a_precision_every_method_answers(folder, precision):
    plain, quick = load(folder), load(folder, precision=precision)
    texts = [" ".join(WORDS[:n]) for n in (3, 20, 7)]
    for ours, theirs in zip(plain.classify(texts), quick.classify(texts), strict=True):
        assert ours.probabilities == pytest.approx(theirs.probabilities, abs=0.03)
    assert np.allclose(plain.embed(texts), quick.embed(texts), atol=20 * NEAR[precision])
    ours, theirs = (each.fill("the [MASK] was fine")[0][0].probability for each in (plain, quick))
    assert ours == pytest.approx(theirs, rel=0.3)


def test_the_commands_take_it(folder, tmp_path):
    rows = write_rows(tmp_path / "a.csv", [{"review": " ".join(WORDS[:n]), "stars": "good"} for n in (3, 9, 14)])
    said = {}
    for precision in ("fp32", "int8"):
        to = tmp_path / f"{precision}.csv"
        done = CliRunner().invoke(app, ["predict", str(folder), str(rows), "--to", str(to), "--precision", precision])
        assert done.exit_code == 0, done.output
        said[precision] = to.read_text()
    assert said["fp32"] != said["int8"]
    wrong = CliRunner().invoke(
        app, ["predict", str(folder), str(rows), "--to", str(tmp_path / "x.csv"), "--precision", "int4"]
    )
    assert "allowed: fp32, bf16, int8" in str(wrong.exception)
    for words in (["evaluate", folder, "--data", rows, "--label", "stars"], ["fill", "the [MASK]", "--model", folder]):
        done = CliRunner().invoke(app, [*map(str, words), "--precision", CAN[1]])
        assert done.exit_code == 0, done.output
    vectors = ["embed", folder, rows, "--text", "review", "--to", tmp_path / "v.npy", "--precision", "int8"]
    assert CliRunner().invoke(app, [*map(str, vectors)]).exit_code == 0


def test_it_only_answers(folder, tmp_path):
    quick = load(folder, precision="int8")
    with pytest.raises(UserError, match="load it without a precision"):
        quick.save(tmp_path / "out")
    with pytest.raises(UserError, match="packed for answering"):
        attention_maps(quick.encoder, torch.tensor([[2, 5, 3]]))
    with pytest.raises(UserError, match="is for a CPU"):
        load(folder, device="cuda", precision="int8")
    with pytest.raises(UserError, match="allowed: fp32, bf16, int8"):
        load(folder, precision="fp8")
