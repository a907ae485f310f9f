"""The bench of CPU inference compares what it says it compares."""

import numpy as np
import pytest

from litebert import config
from litebert.bench import infer
from litebert.config import UserError
from litebert.infer.cpu import has_bf16

for needed in ("transformers", "onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(needed, reason="pip install 'litebert[bench,onnx]'")


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(infer, "in_process", lambda work, *words: work(*words))
        return {
            each.name: each for each in infer.prepare("albert-tiny", "bert-tiny", tmp_path_factory.mktemp("f"), 1, 0)
        }


def test_every_side_gives_the_same_states_as_near_as_it_can(sides):
    ids = np.random.default_rng(0).integers(5, 900, (3, 17))
    mask = (np.arange(17) < np.array([[17], [4], [9]])).astype(np.int64)
    said = {}
    for name, side in sides.items():
        states = (infer.ours if side.precision else infer.theirs)(side)(ids * mask, mask, True)()
        said[name] = states[mask.astype(bool)]
    exact = said["litebert fp32"]
    apart = {name: np.abs(each - exact).max() for name, each in said.items()}
    assert max(apart["onnxruntime fp32"], apart["litebert ONNX"]) < 1e-4
    assert ("litebert bf16" in apart) == has_bf16()
    for rough in {"litebert bf16", "litebert int8", "litebert ONNX int8"} & set(apart):
        assert 1e-4 < apart[rough] < 0.5
    assert apart["onnxruntime int8"] > 1e-4
    assert apart["onnxruntime int8, bert-tiny"] > 1  # another model
    packed = infer.ours(sides["litebert fp32"])(ids * mask, mask, False)()
    assert np.allclose(packed, exact, atol=1e-5)


def test_sides_run_in_turns_in_processes_of_their_own(sides, monkeypatch):
    monkeypatch.setattr(infer, "SHAPES", ((1, 4), (2, 8)))
    monkeypatch.setattr(infer, "RAGGED", (3, 2, 9))
    order, pids = [], set()
    ask = infer.Worker.ask
    monkeypatch.setattr(infer.Worker, "ask", lambda self, *words: pids.add(self.process.pid) or ask(self, *words))
    some = [sides["litebert fp32"], sides["onnxruntime int8"]]
    rows, apart = infer.measure(some, 900, 2, 0, order.append)
    first = [line.split(", ")[-1] for line in order if "(1, 4)" in line]
    assert first == ["litebert fp32", "onnxruntime int8", "onnxruntime int8", "litebert fp32"]
    assert len(pids) == 4  # in each round others
    ragged = [row["side"] for row in rows if row["shape"].startswith("ragged")]
    assert ragged == ["litebert fp32", "onnxruntime int8", "litebert fp32, padded"]
    assert len(rows) == 7
    assert all(row["ms"] > 0 for row in rows)
    assert apart["litebert fp32"] == 0 < apart["onnxruntime int8"]


def test_a_failing_side_is_named_and_short_models_are_refused(tmp_path, monkeypatch):
    worker = infer.Worker(infer.Side("broken", str(tmp_path / "none.onnx")))
    with pytest.raises(UserError, match="the side broken"):
        worker.ready()
    with pytest.raises(UserError, match="the side broken"):
        worker.ask(None, None, False)
    worker.close()
    monkeypatch.setitem(config.PRESETS, "short", config.ModelConfig(positions=64))
    with pytest.raises(UserError, match="fewer than the 128 positions"):
        infer.bench_infer("short", "bert-tiny")


def test_what_a_model_adds_to_a_process_is_counted(sides):
    assert 0 < infer.in_process(infer.resident, sides["litebert int8"].path) < 2**30
