"""The comparison's words: the table says what was measured, and each verdict follows from the rule beside it."""

from dataclasses import replace

import pytest

from litebert.report.advice import check_advice
from litebert.report.compare import Measured, draw_compare, markdown
from litebert.tasks.metrics import Score


def model(name, family, **more):
    measured = {
        "parameters": 1000,
        "bytes": 4 << 20,
        "cpu_ms": 10.0,
        "cpu_per_second": 100.0,
        "memory_bytes": 50 << 20,
    } | more
    return Measured(name=name, model=f"runs/{name}", family=family, sharing="none", stored="float32", **measured)


def scored(value, error=0.01):
    return {"scores": (Score("accuracy", value, error, 400), Score("F1", value / 2, error, 400))}


def verdicts(*models):
    return {each.family: each for each in check_advice(models)}


def test_advice_is_given_for_three_families_and_says_its_rule():
    found = check_advice([model("a", "bert")])
    assert [each.family for each in found] == ["albert", "roberta", "distilbert"]
    assert [each.when for each in found] == [
        "storage matters, run time does not, best results",
        "plain strong BERT",
        "run time matters",
    ]
    assert all(each.rule for each in found)


def test_a_family_that_is_not_there_cannot_be_judged():
    for family, each in verdicts(model("a", "bert"), model("b", "bert")).items():
        assert (each.verdict, each.why) == ("cannot be told here", f"no {family} is among the models")


def test_a_family_alone_cannot_be_judged():
    found = verdicts(model("a", "albert"), model("b", "albert", bytes=1))["albert"]
    assert (found.verdict, found.why) == ("cannot be told here", "all of the models are alberts")


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [(20, 21, "agreed"), (21, 20, "not agreed"), (20, 20, "cannot be told here")],
)
def test_storage_is_told_by_bytes_on_disk(ours, theirs, verdict):
    others = model("b", "bert", bytes=theirs << 20), model("r", "roberta", bytes=90 << 20)
    found = verdicts(model("a", "albert", bytes=ours << 20), model("huge", "albert", bytes=99 << 20), *others)["albert"]
    assert found.verdict == verdict
    assert found.why == f"a {ours}.0 MiB, b {theirs}.0 MiB"


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [(0.90, 0.85, "agreed"), (0.85, 0.90, "not agreed"), (0.90, 0.88, "cannot be told here")],
)
def test_quality_is_told_by_scores_that_differ_by_more_than_chance(ours, theirs, verdict):
    models = [model("r", "roberta", **scored(ours)), model("b", "bert", **scored(theirs))]
    found = verdicts(*models, model("low", "albert", **scored(0.1)))["roberta"]
    assert found.verdict == verdict
    assert found.why == f"accuracy × 100: r {100 * ours:.2f} ± 1.00, b {100 * theirs:.2f} ± 1.00"


def test_quality_without_scores_cannot_be_told():
    found = verdicts(model("r", "roberta"), model("b", "bert"))["roberta"]
    assert (found.verdict, found.why.split(";")[0]) == ("cannot be told here", "no score was measured")


FAST, SLOW = {"cpu_ms": 5.0, "cpu_per_second": 200.0}, {"cpu_ms": 10.0, "cpu_per_second": 100.0}


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        (FAST, SLOW, "agreed"),
        (SLOW, FAST, "not agreed"),
        (FAST, FAST, "cannot be told here"),
        (FAST, {"cpu_ms": 4.8, "cpu_per_second": 100.0}, "cannot be told here"),  # within 5 %
        (FAST, {"cpu_ms": 10.0, "cpu_per_second": 300.0}, "cannot be told here"),  # the two do not agree
        (FAST | {"gpu_ms": 2.0, "gpu_per_second": 9e3}, SLOW | {"gpu_ms": 1.0, "gpu_per_second": 9e4},
         "cannot be told here"),
        (FAST | {"gpu_ms": 1.0, "gpu_per_second": 9e4}, SLOW | {"gpu_ms": 2.0, "gpu_per_second": 9e3}, "agreed"),
    ],
)  # fmt: skip
def test_run_time_is_told_by_every_time_that_was_measured(ours, theirs, verdict):
    found = verdicts(model("d", "distilbert", **ours), model("b", "bert", **theirs))["distilbert"]
    assert found.verdict == verdict
    assert found.why.startswith(f"one at a time on a CPU d {ours['cpu_ms']:.2f} ms, b {theirs['cpu_ms']:.2f} ms; 32 at")
    assert ("GPU" in found.why) == ("gpu_ms" in ours)


def test_the_table_has_a_row_a_model_and_no_empty_column():
    text = markdown([model("a", "bert", parameters=22_713_216), model("long-name", "albert")], 128)
    lines = text.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert [cell.strip() for cell in lines[0].strip("|").split("|")] == [
        "model", "family", "parameters", "on disk", "CPU, 1 × 128 pieces", "CPU, 32 × 128 pieces", "peak memory",
    ]  # fmt: skip
    assert "| 22,713,216 |" in lines[2]
    assert "4.0 MiB float32 |" in lines[2]
    more = markdown([model("a", "bert", gpu_ms=1.5, gpu_per_second=9000.0, memory_bytes=None, **scored(0.9))], 64)
    assert "GPU, 1 × 64 pieces" in more
    assert "9,000 texts/s" in more
    assert "peak memory" not in more
    assert "90.00 ± 1.00 |" in more
    assert "F1 × 100" in more


def test_the_scatter_shows_scores_with_errors_over_every_measure():
    pytest.importorskip("matplotlib")
    models = [model("a", "bert", **scored(0.9)), model("b", "albert", **scored(0.8))]
    shown = [axes for axes in draw_compare(models, 128).axes if axes.get_visible()]
    assert [axes.get_xlabel().split(" ")[0] for axes in shown] == ["parameters", "weights", "CPU:", "CPU:", "peak"]
    for axes in shown:
        assert [each.get_offsets()[0][1] for each in axes.collections if len(each.get_offsets())][-1] == 80
        assert len(axes.containers) == 2
    with_gpu = [replace(each, gpu_ms=1.0, gpu_per_second=5.0) for each in models]
    assert len([axes for axes in draw_compare(with_gpu, 128).axes if axes.get_visible()]) == 7


def test_without_scores_the_scatter_is_over_the_time_of_a_text():
    pytest.importorskip("matplotlib")
    figure = draw_compare([model("a", "bert"), model("b", "albert", cpu_ms=30.0)], 128)
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert len(shown) == 4
    assert shown[0].get_ylabel() == "CPU: milliseconds a text"
    assert [each.get_offsets()[0][1] for each in shown[0].collections] == [10, 30]
    assert len({each.get_paths()[0].vertices.shape[0] for each in shown[0].collections}) == 2  # marks differ
    assert [each.get_text() for each in figure.legends[0].get_texts()] == ["a", "b"]
