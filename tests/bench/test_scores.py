"""The bench of scores: a model beside the same from random weights, on every task, and nothing is made twice."""

import json
import random
import re
import shutil
import signal

import pytest
from typer.testing import CliRunner

from litebert.ablate import once
from litebert.bench import scores
from litebert.cli import app
from litebert.config import UserError
from litebert.infer.model import load
from tests.toys import BAD, GOOD, toy_model


@pytest.fixture
def folder(tmp_path):
    """CoLA's and STS-B's own layouts, in which a word decides."""
    rng = random.Random(0)
    for name in ("CoLA", "STS-B"):
        (tmp_path / "glue" / name).mkdir(parents=True)
    for split, count in (("train", 80), ("dev", 40)):
        words = [rng.choice(GOOD if number % 2 else BAD) for number in range(count)]
        lines = [f"x\t{number % 2}\t\tthe film was {word}" for number, word in enumerate(words)]
        (tmp_path / "glue" / "CoLA" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
        lines = [f"{n}\tthe film\tthe film was {word}\t{5 * (n % 2)}" for n, word in enumerate(words)]
        head = "index\tsentence1\tsentence2\tscore"
        (tmp_path / "glue" / "STS-B" / f"{split}.tsv").write_text("\n".join([head, *lines]) + "\n")
    return tmp_path


def command(folder, *more, rates=("0.003",)):
    model = folder / "toy"
    if not model.exists():
        toy_model(model, seed=3)
    words = ["bench", "scores", str(model), "--data", str(folder), "--to", str(folder / "out")]
    words += [word for rate in rates for word in ("--rate", rate)]
    words += ["--device", "cpu", "--task", "cola", "--task", "stsb", "--seeds", "2", *more]
    return CliRunner().invoke(app, words, catch_exceptions=False)


def test_every_side_is_taught_alike_and_finished_cells_are_not_made_again(folder, monkeypatch):
    found = json.loads(command(folder, "--json").stdout)
    assert found["sides"] == ["toy", "random"]
    names = [(row["task"], row["metric"]) for row in found["rows"]]
    assert names == [("cola", "matthews"), ("stsb", "pearson"), ("stsb", "spearman")]
    assert found["rows"][0]["toy"]["median"] > 0.9
    for row in found["rows"]:
        assert row["paper"] is None
        for side in ("toy", "random"):
            assert row[side]["least"] <= row[side]["median"] <= row[side]["best"]
    random_weights, toy = (load(folder / name).network.state_dict() for name in ("out/random", "toy"))
    assert all(random_weights[name].shape == toy[name].shape for name in random_weights)
    assert any(not random_weights[name].equal(toy[name]) for name in random_weights)
    assert not list((folder / "out" / "runs").iterdir())

    def never(*_, **__):
        raise AssertionError("made again")

    monkeypatch.setattr(once, "finetune_seeds", never)
    assert json.loads(command(folder, "--json").stdout) == found
    table = command(folder).output
    assert f"{100 * found['rows'][0]['toy']['median']:.2f}" in table
    with pytest.raises(UserError, match=r"toy-cola\.json was made with other settings"):
        command(folder, "--steps", "3")


def test_without_random_weights_only_the_named_are_taught_and_those_can_follow(folder):
    alone = json.loads(command(folder, "--no-random", "--json").stdout)
    assert alone["sides"] == ["toy"]
    assert not (folder / "out" / "random").exists()
    both = json.loads(command(folder, "--json").stdout)
    assert both["sides"] == ["toy", "random"]
    assert [row["toy"] for row in both["rows"]] == [row["toy"] for row in alone["rows"]]


def test_of_several_rates_each_side_has_its_best(folder):
    both = {"rates": ("0.0000001", "0.003", "0.0000002")}
    found = json.loads(command(folder, "--no-random", "--json", **both).stdout)
    assert [row["rates"] for row in found["rows"]] == [{"toy": 0.003}] * 3
    assert sorted(file.stem for file in (folder / "out").glob("*.json")) == [
        f"toy-{task}-{rate}" for task in ("cola", "stsb") for rate in ("0.003", "1e-07", "2e-07")
    ]
    files = [folder / "out" / f"toy-cola-{rate}.json" for rate in ("1e-07", "0.003")]
    low, high = (json.loads(file.read_text())["scores"]["matthews"]["median"] for file in files)
    assert low < high == found["rows"][0]["toy"]["median"]
    table = command(folder, "--no-random", **both).output
    assert f"{100 * high:.2f} ± " in table
    assert "at 0.003" in " ".join(table.split())


def test_a_rate_that_is_added_makes_nothing_again(folder, monkeypatch):
    alone = json.loads(command(folder, "--no-random", "--json").stdout)
    real, made = once.finetune_seeds, []

    def noted(recipe, *rest):
        made.append(recipe.tune.rate)
        return real(recipe, *rest)

    monkeypatch.setattr(once, "finetune_seeds", noted)
    both = json.loads(command(folder, "--no-random", "--json", rates=("0.0000001", "0.003")).stdout)
    assert made == [1e-7, 1e-7]
    assert [row["toy"] for row in both["rows"]] == [row["toy"] for row in alone["rows"]]
    command(folder, "--no-random", rates=("0.0000001",))
    assert made == [1e-7, 1e-7]


def test_a_setting_that_an_earlier_version_did_not_know_makes_nothing_again(folder, monkeypatch):
    found = json.loads(command(folder, "--no-random", "--json").stdout)
    file = folder / "out" / "toy-cola.json"
    stored = json.loads(file.read_text())
    del stored["recipe"]["tune"]["patience"]
    file.write_text(json.dumps(stored))
    monkeypatch.setattr(once, "finetune_seeds", None)
    assert json.loads(command(folder, "--no-random", "--json").stdout) == found


def test_a_rate_that_cannot_be_is_found_before_anything_is_taught(folder):
    with pytest.raises(UserError, match=r"rate = -1\.0 must be above 0"):
        command(folder, "--no-random", rates=("0.003", "-1"))
    assert not list(folder.glob("out/*.json"))


def test_a_precision_that_is_none_is_one_line(folder):
    with pytest.raises(UserError, match="precision"):
        command(folder, "--precision", "fp17")


class Killed(Exception):  # noqa: N818  nothing catches it
    pass


def test_killed_it_goes_on_with_the_seeds_that_are_left(folder, monkeypatch):
    from litebert.train import seeds as module

    real, taught = module.finetune, []

    def breaks(recipe, inside, *rest):
        if len(taught) == 1:
            raise Killed
        taught.append(inside.name)
        return real(recipe, inside, *rest)

    monkeypatch.setattr(module, "finetune", breaks)
    with pytest.raises(Killed):
        command(folder, "--steps", "4")
    assert (folder / "out" / "runs" / "toy-cola" / "seed-0" / "model").exists()

    def asked(*_):
        raise module.Stopped(2, signal.SIGTERM)

    monkeypatch.setattr(module, "finetune", asked)
    said = command(folder, "--steps", "4")
    assert said.exit_code == 128 + signal.SIGTERM
    assert said.stderr.splitlines()[-1] == "stopped; what is done is kept: the same command goes on from there"
    monkeypatch.setattr(module, "finetune", real)
    assert len(json.loads(command(folder, "--steps", "4", "--keep", "--json").stdout)["rows"]) == 3
    assert (folder / "out" / "runs" / "random-stsb" / "seed-1" / "model").exists()


def test_the_papers_figures_stand_beside_ours():
    found = scores.paper_scores("albert-base")
    assert found["squad", "f1"] == 89.3
    assert found["squad", "em"] == 82.3
    assert found["race", "accuracy"] == 64.0
    with pytest.raises(UserError, match=re.escape("the paper has no 'albert'; it has bert-base, ")):
        scores.paper_scores("albert")


def test_what_cannot_be_compared_is_one_line(folder):
    for more, sentence in (
        (["--task", "snli"], "no task 'snli'; the tasks: cola, mrpc, stsb, rte, wnli, sst2, qqp, mnli, squad, race"),
        (["--beside", str(folder / "toy")], "two models of one name among"),
        (["--paper", "gpt"], "the paper has no 'gpt'"),
    ):
        with pytest.raises(UserError, match=re.escape(sentence)):
            command(folder, *more)


def test_scores_of_another_shape_are_not_mixed_in(folder):
    command(folder, "--steps", "2")
    shutil.rmtree(folder / "toy")
    toy_model(folder / "toy", layers=3)
    with pytest.raises(UserError, match="has scores of a model of another shape"):
        command(folder, "--steps", "2")
    toy_model(folder / "random", seed=3)
    with pytest.raises(UserError, match="two models of one name among"):
        command(folder, "--steps", "2", "--beside", str(folder / "random"))


def test_every_trial_reads_real_files(data):
    """Each names a task or columns that are there."""
    from litebert.train.lesson import read_files, task_of

    for name, trial in scores.trials(data).items():
        if name in ("sst2", "squad", "race"):  # large, and read elsewhere
            continue
        train, dev, _ = read_files(trial.task, task_of(trial.task))
        assert len(train) > len(dev) > 50, name
