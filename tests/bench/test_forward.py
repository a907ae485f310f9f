"""The bench measures what it says it measures."""

import pytest

from litebert.bench.forward import bench_forward
from litebert.bench.timing import interleaved
from litebert.config import UserError


def test_both_sides_give_the_same_answers_at_every_shape():
    pytest.importorskip("transformers")
    said = []
    found = bench_forward("albert-tiny", repeats=1, say=said.append)
    assert (
        [row["shape"] for row in found["rows"]] == ["(1, 16)", "(1, 128)", "(8, 128)", "ragged (32, 8 to 128)"] == said
    )
    for row in found["rows"]:
        assert row["largest_difference"] < 1e-4
        assert row["ratio"] == pytest.approx(row["litebert_ms"] / row["transformers_ms"])
    assert found["matmul_gflops"] > 0


def test_rounds_are_interleaved_after_a_warm_up():
    order = []
    seconds = interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, repeats=2, warm_up=1)
    assert "".join(order) == "ab" + "ab" + "ba"
    assert set(seconds) == {"a", "b"}


def test_a_model_too_short_for_the_shapes_is_refused(monkeypatch):
    from litebert import config

    monkeypatch.setitem(config.PRESETS, "short", config.ModelConfig(positions=64))
    with pytest.raises(UserError, match="short has 64 positions and this bench needs 128"):
        bench_forward("short")
