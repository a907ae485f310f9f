"""The bench of the server measures what it says it measures."""

from contextlib import nullcontext

import pytest

from litebert.bench import serve
from litebert.bench.serve import LONGEST, SHORTEST, bench_serve, books, sample
from litebert.config import UserError
from litebert.infer.model import load
from tests.toys import toy_model

pytest.importorskip("fastapi", reason="pip install 'litebert[serve]'")


def test_both_sides_answer_the_same_texts_in_one_run(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = bench_serve("albert-tiny", connections=4, count=24, rounds=2, words=["--pieces", "256"])
    assert found["error_rate"] == 0
    assert found["ratio"] == pytest.approx(found["served_texts_per_second"] / found["direct_texts_per_second"], rel=0.5)
    assert found["by_batch"][str(found["best_batch"])] == max(found["by_batch"].values())
    assert len(found["ratios"]) == 2
    assert min(found["ratios"]) <= found["ratio"] <= max(found["ratios"])
    assert 0 < found["p50_ms"] <= found["p99_ms"]


def test_a_round_is_held_against_the_direct_runs_around_it(monkeypatch):
    direct = iter([1.0, 3.0, 2.0, 10.0, 20.0, 30.0])  # three sizes are tried first
    clock = iter([0.0, 1.0, 5.0, 7.0])
    monkeypatch.setattr(serve, "direct", lambda *_: next(direct))
    monkeypatch.setattr(serve, "drive", answered)
    monkeypatch.setattr(serve, "server", lambda _: nullcontext())
    monkeypatch.setattr(serve, "served_folder", lambda *_: nullcontext("nowhere"))
    monkeypatch.setattr(serve, "load", lambda *_, **__: None)
    monkeypatch.setattr(serve, "sample", lambda *_: ["a text"] * 128)
    monkeypatch.setattr(serve.time, "perf_counter", lambda: next(clock))
    found = bench_serve(count=128, rounds=2)
    assert found["best_batch"] == 32
    assert found["ratios"] == [128 / 15, 64 / 25]


async def answered(_, texts, __):
    return [200] * len(texts), [0.1] * len(texts)


def test_texts_have_8_to_128_pieces(tmp_path):
    from dataclasses import replace

    from litebert.config import HeadConfig
    from litebert.model.weights import build
    from litebert.tasks.example import Task
    from litebert.tasks.taught import Taught

    model = load(toy_model(tmp_path / "m", positions=LONGEST))
    with pytest.raises(UserError, match="this bench asks for classes; give a model that was taught some"):
        sample(model, ["a b c"], 3, 0)
    labels = ("a", "b")
    network = build(model.config, (HeadConfig(kind="classify", labels=labels),), 0)
    model = replace(model, network=network, taught=Taught(Task(kind="classify", labels=labels)))
    texts = sample(model, [book[:50_000] for book in books()[:2]], 60, 0)
    sizes = [len(model.tokenizer.encode(text).input_ids) for text in texts]
    assert SHORTEST <= min(sizes) < 30
    assert 100 < max(sizes) <= LONGEST
