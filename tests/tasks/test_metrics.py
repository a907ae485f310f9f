"""Metrics against scikit-learn, scipy and the official SQuAD figures."""

import json
import lzma

import numpy as np
import pytest

from litebert.tasks import metrics
from litebert.tasks.example import METRICS

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("labels", [2, 3, 7])
@pytest.mark.parametrize("count", [5, 200])
def test_classification_metrics_equal_scikit_learn(labels, count):
    peer = pytest.importorskip("sklearn.metrics")
    for _ in range(20):
        gold, guess = RNG.integers(0, labels, (2, count))
        assert metrics.accuracy(gold, guess) == pytest.approx(peer.accuracy_score(gold, guess))
        assert metrics.matthews(gold, guess) == pytest.approx(peer.matthews_corrcoef(gold, guess))
        assert metrics.macro_f1(gold, guess) == pytest.approx(
            peer.f1_score(gold, guess, average="macro", zero_division=0)
        )
        if labels == 2:
            assert metrics.f1(gold, guess) == pytest.approx(peer.f1_score(gold, guess, zero_division=0))


@pytest.mark.parametrize("ties", [False, True])
def test_correlations_equal_scipy(ties):
    peer = pytest.importorskip("scipy.stats")
    for _ in range(20):
        gold, guess = RNG.normal(size=(2, 50))
        if ties:
            gold, guess = np.round(gold), np.round(guess)
        assert metrics.pearson(gold, guess) == pytest.approx(peer.pearsonr(gold, guess)[0])
        assert metrics.spearman(gold, guess) == pytest.approx(peer.spearmanr(gold, guess)[0])


def test_what_numbers_explain_equals_scikit_learn():
    peer = pytest.importorskip("sklearn.metrics")
    for size in (1e-3, 1.0, 1e9):
        gold, guess = size * RNG.normal(size=(2, 50)) + 5 * size
        assert metrics.r2(gold, guess) == pytest.approx(peer.r2_score(gold, guess))
        assert metrics.r2(gold, (gold + guess) / 2) == pytest.approx(peer.r2_score(gold, (gold + guess) / 2))


def test_guesses_that_are_all_too_small_correlate_but_explain_nothing():
    gold = np.linspace(30_000, 275_000, 50)
    guess = 5.63 + gold / 1e7
    assert metrics.pearson(gold, guess) == pytest.approx(1.0)
    assert metrics.r2(gold, guess) < -1
    assert [metrics.r2(gold, each) for each in (gold, np.full(50, gold.mean()))] == pytest.approx([1.0, 0.0])
    assert METRICS["regress"][0] == "r2"  # the first decides which checkpoint is best


def test_what_does_not_vary_correlates_with_nothing():
    flat, other = np.ones(10), np.arange(10)
    for metric in (metrics.pearson, metrics.spearman, metrics.matthews):
        assert metric(flat, other) == 0.0
    assert metrics.r2(np.full(7, 0.1), other[:7]) == 0.0  # whose mean is not quite 0.1
    assert metrics.f1(np.zeros(5), np.zeros(5)) == 0.0


@pytest.mark.parametrize("name", ["accuracy", "f1", "matthews", "r2", "pearson", "spearman"])
def test_an_error_is_what_repetition_shows(name):
    """Of many sets of 300, the scores scatter by what one set's error says, within a third."""
    metric = getattr(metrics, name)
    scores, errors = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        gold = rng.integers(0, 2, 300)
        guess = np.where(rng.random(300) < 0.75, gold, 1 - gold)
        scores.append(metric(gold, guess))
        errors.append(metrics.score(name, metric, gold, guess).error)
    assert np.mean(errors) == pytest.approx(np.std(scores), rel=0.33)


def test_the_error_of_r2_stands_although_a_few_numbers_are_all_but_one():
    """Of six prices, four near a million: where a draw has only those, guesses far off are billions of times as far."""
    gold = np.array([1e6, 1e6 + 0.5, 1e6 + 1, 1e6 + 1.5, 4e6, 9e6])
    found = metrics.score("r2", metrics.r2, gold, gold.mean() + (gold - gold.mean()) / 50)
    assert found.value == pytest.approx(0.04, abs=0.01)
    assert 0 < found.error < 10


@pytest.mark.parametrize(("file", "exact", "f1"), [("dev-v1.1", 86.21, 92.20), ("dev-v2.0", 78.74, 81.78)])
def test_squad_metrics_are_the_official_ones(file, exact, f1, data):
    with lzma.open(data / "squad" / f"{file}.json.xz") as handle:
        articles = json.load(handle)["data"]
    golds = {
        question["id"]: [answer["text"] for answer in question["answers"]]
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    }
    (path,) = [path for path in (data / "squad" / "predictions").iterdir() if file in path.name]
    guesses = json.loads(path.read_text())
    assert set(golds) == set(guesses)
    for metric, expected in ((metrics.exact_match, exact), (metrics.answer_f1, f1)):
        found = metrics.mean_score("", [metric(golds[key], guesses[key]) for key in golds])
        assert round(100 * found.value, 2) == expected
        assert 0 < 100 * found.error < 1


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["O", "O"], set()),
        (["B-A", "B-A"], {(0, 1, "A"), (1, 2, "A")}),
        (["I-A", "I-A", "I-B"], {(0, 2, "A"), (2, 3, "B")}),
        (["S-A", "B-A", "I-A", "E-A"], {(0, 1, "A"), (1, 4, "A")}),
        (["B-A", "O", "I-A"], {(0, 1, "A"), (2, 3, "A")}),
    ],
)
def test_entities_are_read_as_conlleval_reads_them(tags, expected):
    assert metrics.entities(tags) == expected


def test_entity_f1_counts_whole_entities():
    gold = [["B-A", "I-A", "O", "B-B"]]
    assert metrics.entity_f1(gold, gold) == 1.0
    assert metrics.entity_f1(gold, [["B-A", "O", "O", "B-B"]]) == pytest.approx(0.5)
    assert metrics.entity_f1(gold, [["O"] * 4]) == 0.0
    assert metrics.entity_f1([["O"]], [["O"]]) == 0.0


def test_no_answer_is_right_where_there_is_none():
    assert metrics.exact_match([], "") == metrics.answer_f1([], "") == 1.0
    assert metrics.exact_match([], "something") == metrics.answer_f1([], "something") == 0.0
    assert metrics.answer_f1(["the red house"], "red") == pytest.approx(2 / 3)
