"""The bench of CPU inference compares what it says it compares."""

import pytest

from litebert.config import UserError

for needed in ("transformers", "onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(needed, reason="pip install 'litebert[bench,onnx]'")


def test_every_side_gives_the_same_states_as_near_as_it_can(monkeypatch):
    from litebert.bench import infer

    monkeypatch.setattr(infer, "LEAST", 0.0)
    found = infer.bench_infer("albert-tiny", "bert-tiny", rounds=1)
    apart = found["differences"]
    assert max(apart["onnxruntime fp32"], apart["litebert ONNX"]) < 1e-4
    for rough in ("litebert bf16", "litebert int8", "litebert ONNX int8", "onnxruntime int8"):
        assert 1e-4 < apart[rough] < 0.5
    shapes = {row["shape"] for row in found["rows"]}
    assert shapes == {"(1, 16)", "(1, 128)", "(8, 128)", "ragged (32, 8 to 128)"}
    assert {row["side"] for row in found["rows"] if row["shape"].startswith("(")} | {
        f"litebert {kind}, padded" for kind in ("fp32", "bf16", "int8")
    } == {row["side"] for row in found["rows"]}
    assert all(row["ms"] > 0 for row in found["rows"])
    assert found["memory_int8_bytes"] > 0


def test_a_failing_side_is_named_and_short_models_are_refused(tmp_path, monkeypatch):
    from litebert import config
    from litebert.bench.infer import Side, Worker, bench_infer

    worker = Worker(Side("broken", str(tmp_path / "none.onnx")))
    with pytest.raises(UserError, match="the side broken"):
        worker.ask(None, None, False)
    worker.close()
    monkeypatch.setitem(config.PRESETS, "short", config.ModelConfig(positions=64))
    with pytest.raises(UserError, match="fewer than the 128 positions"):
        bench_infer("short", "bert-tiny")
