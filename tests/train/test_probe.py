"""A linear probe: it finds what the vectors hold, finds nothing where there is nothing, and says what it cannot do."""

import json
import random
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from litebert.cli import app
from litebert.config import ModelConfig, UserError
from litebert.infer.embed import embedder
from litebert.infer.model import Model
from litebert.model.weights import build
from litebert.recipe import TaskConfig
from litebert.tasks.example import Example, Task
from litebert.text.tokenizer import Tokenizer
from litebert.train.probe import STRENGTHS, choose_strength, fit_probe, probe
from tests.conftest import FAMILIES

pytest.importorskip("sklearn")

WORDS = ("fine", "great", "poor", "awful", "red", "blue", "the", "film", "was", "book", "and", "up", "of")
GOOD, BAD, PLAIN = WORDS[:2], WORDS[2:4], WORDS[6:11]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")
    pieces = Tokenizer.load(folder / "vocab.txt")
    sizes = {"vocab_size": len(pieces), "hidden_size": 64, "ffn_size": 64, "layers": 2, "heads": 4, "positions": 32}
    config = ModelConfig(**{**sizes, **FAMILIES["bert"], "init_std": 0.05})
    return Model(network=build(config, seed=1), tokenizer=pieces)


def text(draw, *inside, size=5):
    words = [*inside, *draw.choices(PLAIN, k=size - len(inside))]
    draw.shuffle(words)
    return " ".join(words)


def classes(count, seed, shuffled=False):
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        label = draw.choice(["bad", "good"])
        word = draw.choice(GOOD if label == "good" else BAD)
        rows.append({"text": text(draw, word), "label": draw.choice(["bad", "good"]) if shuffled else label})
    return rows


def several(count, seed):
    draw = random.Random(seed)
    made = [[colour for colour in ("red", "blue") if draw.random() < 0.5] for _ in range(count)]
    return [{"text": text(draw, *colours), "labels": [*colours, "any"]} for colours in made]


def numbers(count, seed):
    draw = random.Random(seed)
    made = [draw.randint(0, 4) for _ in range(count)]
    return [{"text": text(draw, *["up"] * ups), "label": ups + 0.5} for ups in made]


def file(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def config(folder, rows, *more, **said):
    """A task of a train and a dev file."""
    return TaskConfig(
        train=file(folder / "train.jsonl", rows(160, 1, *more)),
        dev=file(folder / "dev.jsonl", rows(80, 2, *more)),
        **said,
    )


def test_what_a_line_separates_is_found_and_shuffled_labels_are_not(model, tmp_path):
    found = probe(embedder(model), config(tmp_path, classes))
    assert [each.name for each in found.scores] == ["accuracy", "macro_f1"]
    assert [each.value for each in found.scores] == [1.0, 1.0]
    assert (found.train, found.dev, found.width, found.cut, found.scores[0].count) == (160, 80, 64, 0, 80)
    shuffled = probe(embedder(model), config(tmp_path, classes, True)).scores[0]
    assert shuffled.value < 0.7
    assert shuffled.error > 0.04


def test_several_labels_have_a_probe_each(model, tmp_path):
    found = probe(embedder(model), config(tmp_path, several))
    assert found.task.labels == ("any", "blue", "red")  # 'any' is always there, which needs no fit
    assert {each.name: each.value for each in found.scores}["exact"] > 0.95


def test_numbers_are_a_ridge(model, tmp_path):
    found = probe(embedder(model), config(tmp_path, numbers))
    assert found.task.kind == "regress"
    assert found.scores[0].name == "r2"
    assert found.scores[0].value > 0.95


def test_pairs_are_read_as_pairs(model, tmp_path):
    """The second text decides; the first alone says nothing."""

    def pairs(count, seed):
        return [row | {"other": text(random.Random(n), size=3)} for n, row in enumerate(classes(count, seed))]

    both = probe(embedder(model), config(tmp_path, pairs, texts=("other", "text"), label=("label",)))
    alone = probe(embedder(model), config(tmp_path, pairs, texts=("other",), label=("label",)))
    assert both.scores[0].value > 0.95
    assert alone.scores[0].value < 0.75


def test_layers_and_cuts_are_those_of_the_vectors(model, tmp_path):
    found = probe(embedder(model, layers="concat2", length=8), config(tmp_path, classes))
    assert (found.width, found.cut) == (128, 0)

    def longer(count, seed):
        return [row | {"text": row["text"] + " of" * 9} for row in classes(count, seed)]

    found = probe(embedder(model, length=8), config(tmp_path, longer))
    assert found.cut == 240
    assert "240 of 240 texts are longer than 8 pieces and were cut" in found.notes


def examples(targets):
    return [Example(key=str(n), texts=("a",), target=target) for n, target in enumerate(targets)]


def test_a_stronger_penalty_says_less(tmp_path):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 5)).astype(np.float32)
    made = examples((3 * vectors[:, 0]).tolist())
    task = Task(kind="regress")
    spreads = [np.std(fit_probe(task, vectors, made, strength)[0](vectors)) for strength in (0.01, 100.0, 1e6)]
    assert spreads[0] > 2 * spreads[1] > 100 * spreads[2]


def test_the_size_of_a_feature_does_not_matter():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 5)).astype(np.float32)
    made = examples(["x" if row[0] > 0 else "y" for row in vectors])
    task = Task(kind="classify", labels=("x", "y"))
    one, settled = fit_probe(task, vectors, made, 1.0)
    other, _ = fit_probe(task, vectors * np.float32([1e-3, 1, 1e3, 1, 7]) + 5, made, 1.0)
    assert settled
    assert one(vectors) == other(vectors * np.float32([1e-3, 1, 1e3, 1, 7]) + 5)


def test_auto_chooses_a_strong_penalty_where_features_are_noise():
    """Few rows, many features of noise and one faint signal: weak penalties learn the noise by heart."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(150, 140)).astype(np.float32)
    quantity = noise[:, :20].sum(1) / 4 + rng.normal(size=150) * 2
    task, made = Task(kind="regress"), examples(quantity.tolist())
    chosen = choose_strength(task, noise, made, 0)
    assert chosen in STRENGTHS
    assert chosen >= 10
    assert choose_strength(task, noise, made, 0) == chosen
    exact = examples((noise @ rng.normal(size=140)).tolist())
    assert choose_strength(task, noise[:, :140], exact, 0) < chosen


def test_auto_is_said_in_the_notes(model, tmp_path):
    found = probe(embedder(model), config(tmp_path, classes), None)
    assert found.strength in STRENGTHS
    assert f"strength {found.strength:g}, chosen on 20 % of the training examples (seed 0)" in found.notes
    assert found.scores[0].value > 0.95


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"tokens": ["a", "b"], "tags": ["O", "B-X"]}, "tag"),
        ({"question": "q", "context": "abc", "answers": ["b"]}, "answer"),
        ({"text": "p", "options": ["a", "b"], "label": 1}, "choice"),
    ],
)
def test_kinds_that_need_more_than_a_vector_are_refused(model, row, kind, tmp_path):
    chosen = TaskConfig(train=file(tmp_path / "a.jsonl", [row] * 9))
    with pytest.raises(UserError, match=f"this is a task of kind '{kind}'; teach it by: litebert finetune"):
        probe(embedder(model), chosen)


def test_what_cannot_be_fitted_is_one_line(model, tmp_path, monkeypatch):
    how = embedder(model)
    same = [{"text": "film", "label": "x"}] * 12
    with pytest.raises(UserError, match="every row has the label 'x'; there is nothing to tell apart"):
        probe(how, TaskConfig(train=file(tmp_path / "a.jsonl", same)))
    with pytest.raises(UserError, match="strength = 0 must be above 0, or auto"):
        probe(how, config(tmp_path, classes), 0)
    few = [{"text": "film", "label": "x"}, {"text": "book", "label": "y"}]
    with pytest.raises(UserError, match="2 examples are too few to choose a strength by; say it: --strength 1"):
        probe(how, TaskConfig(train=file(tmp_path / "b.jsonl", few), dev=file(tmp_path / "c.jsonl", few)), None)
    with pytest.raises(UserError, match="the dev file holds no example"):
        probe(how, TaskConfig(train=file(tmp_path / "b.jsonl", few), dev=file(tmp_path / "d.jsonl", [])))
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(UserError, match=r"needs scikit-learn; install it with: pip install 'litebert\[probe\]'"):
        probe(how, config(tmp_path, classes))


def test_the_command_prints_scores_with_their_errors(model, tmp_path):
    model.save(tmp_path / "model")
    chosen = config(tmp_path, classes)
    words = ["probe", str(tmp_path / "model"), "--train", chosen.train, "--dev", chosen.dev, "--layers", "concat2"]
    done = CliRunner().invoke(app, [*words, "--strength", "0.5", "--json"], catch_exceptions=False)
    said = json.loads(done.stdout)
    assert said["scores"][0] == {"name": "accuracy", "value": 1.0, "error": 0.0, "count": 80}
    assert (said["width"], said["strength"], said["task"]) == (128, 0.5, "classify")
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "accuracy" in done.stdout
    assert "100.00" in done.stdout
    assert "task: classify (2 labels: bad, good)" in done.stderr
    with pytest.raises(UserError, match="--strength 'much' must be a number above 0, or auto"):
        CliRunner().invoke(app, [*words, "--strength", "much"], catch_exceptions=False)


def test_a_benchmark_is_read_from_its_folder(model, tmp_path):
    for split, seed in (("train", 1), ("dev", 2)):
        rows = classes(120, seed)
        lines = [f"{row['text']}\t{int(row['label'] == 'good')}\n" for row in rows]
        (tmp_path / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    found = probe(embedder(model), TaskConfig(name="sst2", data=str(tmp_path)))
    assert found.task.name == "sst2"
    assert found.scores[0].value == 1.0
