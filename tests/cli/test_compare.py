"""`litebert compare`: one table, one picture, the advice, and scores that are those of `litebert evaluate`."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from litebert.bench import compare as bench
from litebert.cli import app
from litebert.config import HeadConfig, Reading, UserError
from litebert.infer.model import load
from litebert.model.weights import build
from litebert.tasks.example import Task
from litebert.tasks.taught import Taught
from tests.toys import classes, toy_model, write_rows

CLASSES = Task(kind="classify", labels=("bad", "good"), texts=("review",), label=("stars",))


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """Two models with a head, of fresh weights."""
    where, found = tmp_path_factory.mktemp("models"), []
    for family in ("albert", "distilbert"):
        folder = toy_model(where / family, family, layers=3, seed=2)
        model = load(folder)
        network = build(model.config, (HeadConfig(kind="classify", labels=CLASSES.labels),), 2)
        replace(model, network=network, taught=Taught(CLASSES, Reading(length=32))).save(folder)
        found.append(str(folder))
    return found


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(bench, "peak_memory", lambda word, precision, length: (5 << 20, ""))


@pytest.fixture
def file(tmp_path):
    return write_rows(tmp_path / "dev.csv", classes(40))


def run(*words):
    words = ["compare", *map(str, words), "--device", "cpu", "--rounds", "1", "--length", "16"]
    return CliRunner().invoke(app, words, catch_exceptions=False)


def test_scores_are_those_of_evaluate(taught, file):
    found = json.loads(run(*taught, "--data", file, "--json").stdout)
    for name, each in zip(taught, found["models"], strict=True):
        words = ["evaluate", name, "--data", str(file), "--device", "cpu", "--json"]
        alone = json.loads(CliRunner().invoke(app, words, catch_exceptions=False).stdout)
        assert each["scores"] == alone["scores"]
    assert found["models"][0]["scores"] != found["models"][1]["scores"]
    assert [each["family"] for each in found["advice"]] == ["albert", "roberta", "distilbert"]
    assert found["advice"][0]["verdict"] == "agreed"  # one layer instead of three
    assert found["advice"][1]["verdict"] == "cannot be told here"


def test_a_folder_gets_table_figures_and_scatter(taught, file, tmp_path):
    pytest.importorskip("matplotlib")
    to = tmp_path / "out"
    done = run("Small=" + taught[0], taught[1], "--data", file, "--to", to)
    assert {path.name for path in to.iterdir()} == {"compare.md", "compare.json", "compare.png"}
    assert done.stdout.startswith((to / "compare.md").read_text())
    assert (to / "compare.png").read_bytes().startswith(b"\x89PNG")
    written = json.loads((to / "compare.json").read_text())
    assert [each["name"] for each in written["models"]] == ["Small", "distilbert"]
    assert written["command"].startswith(f"litebert compare Small={taught[0]} distilbert={taught[1]} --data {file}")
    text = done.stdout
    assert "| accuracy × 100 |" in text
    assert "16 pieces" in text
    assert "**Agreed**: Small " in text
    assert text.count("The rule: ") == 3


def test_models_that_were_taught_nothing_are_compared_without_scores(tmp_path):
    folder = toy_model(tmp_path / "plain", "bert")
    text = run(folder).stdout
    assert "| plain | bert" in text.replace("  ", " ")
    assert "× 100" not in text
    assert "Cannot be told here" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--task", "sst2"], "--task sst2 says how to read what to score on; say where it is: --data FOLDER"),
        (["--data", "none.csv"], "none.csv"),
        (["--task", "rte", "--data", "."], "rte asks for"),
        (["--to", "file"], "file is a file; a report is a folder"),
        (["--split", "dev", "--data", "file"], "--split dev is a part of a benchmark"),
        (["--split", "dev"], "--split dev is a part of a benchmark"),
        (["--precision", "fp8"], "precision = 'fp8'; allowed: fp32, bf16, int8"),
    ],
)
def test_a_mistake_is_one_line(words, sentence, taught, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError) as problem:
        run(*taught, *words)
    assert sentence in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_model_that_was_taught_nothing_cannot_be_scored(taught, file, tmp_path):
    folder = toy_model(tmp_path / "plain", "bert")
    with pytest.raises(UserError, match="plain: this model was taught no task"):
        run(*taught, folder, "--data", file)
