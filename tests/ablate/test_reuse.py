"""What another table has trained already is taken from there, and only that."""

import json
import shutil
from dataclasses import replace

import pytest

from litebert.ablate import once
from litebert.ablate.job import new_job
from litebert.ablate.once import RESULT
from litebert.ablate.run import check, results, run_all
from litebert.ablate.table import tabulate
from litebert.config import UserError
from litebert.train import pretrain as pretraining
from tests.ablate.conftest import TWO


def quiet(_):
    pass


@pytest.fixture(scope="module")
def made_once(text, tmp_path_factory):
    """A table of one cell and two seeds, whose folder is copied for each test."""
    folder = tmp_path_factory.mktemp("first")
    (folder / "two.toml").write_text(TWO)
    settings = {"seeds": 2, "cells": ["shared"], "device": "cpu"}
    run_all(new_job(str(folder / "two.toml"), "smoke", folder / "out", str(text / "shards"), **settings), quiet)
    return folder / "out"


class TestWhatAnotherTableHas:
    """The same cells under other names, in a table that asks for one more column."""

    @pytest.fixture
    def first(self, job, made_once, tmp_path):
        shutil.copytree(made_once, tmp_path / "out")
        return job(cells=["shared"])

    @pytest.fixture
    def second(self, recipe, text, tmp_path):
        other = tmp_path / "other.toml"
        wanted = (
            recipe.read_text()
            .replace('"shared"', '"all"')
            .replace('"masked", "order"', '"masked", "perplexity", "order"')
        )
        other.write_text(wanted)

        def make(**more):
            return new_job(str(other), "smoke", tmp_path / "second", str(text / "shards"), device="cpu", **more)

        return make

    def test_is_taken_and_not_trained_again(self, first, second, tmp_path, monkeypatch):
        begun, real, lessons, teach = [], pretraining.train, [], once.finetune_seeds
        monkeypatch.setattr(pretraining, "train", lambda s, *r: begun.append(s.recipe.model.sharing) or real(s, *r))
        monkeypatch.setattr(once, "finetune_seeds", lambda r, *rest: lessons.append(r) or teach(r, *rest))
        made = second(others=[tmp_path / "out"])
        run_all(made, quiet)
        assert begun == ["none"], "shared is the model that the first table calls so"
        assert len(lessons) == 1, "and has been taught the task there"
        ours, theirs = results(made)["all"][0]["figures"], results(first)["shared"][0]["figures"]
        assert {key: ours[key] for key in theirs} == theirs
        assert set(ours) - set(theirs) == {"perplexity"}
        table = tabulate(made, results(made))
        assert "Taken from another table, where they were trained alike: all (out, cell shared)." in table.notes

    def test_is_not_taken_where_a_setting_differs_or_it_failed(self, first, second, tmp_path):
        made = second(others=[tmp_path / "out"], sets=["model.heads=2"], cells=["all"])
        run_all(made, quiet)
        assert "taken" not in results(made)["all"][0]
        file = first.folder("shared", 0) / RESULT
        file.write_text(json.dumps(json.loads(file.read_text()) | {"failed": "out of memory"}))
        again = replace(second(others=[tmp_path / "out"], cells=["all"]), to=tmp_path / "third")
        run_all(again, quiet)
        assert "taken" not in results(again)["all"][0]

    def test_nor_what_was_made_elsewhere_or_with_another_seed(self, first, second, tmp_path):
        file = first.folder("shared", 0) / RESULT
        result = json.loads(file.read_text())
        file.write_text(json.dumps(result | {"where": result["where"] | {"device": "an abacus"}}))
        told = []
        made = second(others=[tmp_path / "out"], cells=["all"])
        run_all(made, told.append)
        assert "taken" not in results(made)["all"][0]
        assert any("was trained alike, on text in the same place" in line.get("text", "") for line in told)
        file.write_text(json.dumps(result))
        later = replace(second(others=[tmp_path / "out"], sets=["run.seed=5"], cells=["all"]), to=tmp_path / "third")
        run_all(later, quiet)
        assert "taken" not in results(later)["all"][0]

    def test_a_task_that_was_taught_otherwise_is_taught_here(self, first, second, tmp_path):
        """The same model: run.seed and the number of the seed make up for each other, but not for the lesson."""
        made = second(others=[tmp_path / "out"], sets=["run.seed=1"], cells=["all"])
        run_all(made, quiet)
        found = results(made)["all"][0]
        assert found["failed"] is None
        assert found["taken"] == "out, cell shared"
        ours = json.loads((made.folder("all", 0) / "tasks" / "authors.json").read_text())
        theirs = json.loads((first.folder("shared", 1) / "tasks" / "authors.json").read_text())
        assert ours["recipe"]["tune"]["seed"] + 1 == theirs["recipe"]["tune"]["seed"]

    def test_killed_while_it_is_brought_nothing_of_it_is_believed(self, first, second, tmp_path, monkeypatch):
        made = second(others=[tmp_path / "out"], cells=["all"])

        class Killed(BaseException):
            pass

        def dies(*_, **__):
            raise Killed

        monkeypatch.setattr("litebert.ablate.reuse.shutil.copytree", dies)
        with pytest.raises(Killed):
            run_all(made, quiet)
        assert not (made.folder("all", 0) / "tasks").exists()
        monkeypatch.undo()
        alone = replace(made, others=())
        run_all(alone, quiet)
        assert "taken" not in results(alone)["all"][0]

    def test_where_it_cannot_be_copied_it_is_trained(self, first, second, tmp_path, monkeypatch):
        real = shutil.copytree

        def full(source, *rest, **more):
            if source.name == "pretrain":
                raise OSError(28, "No space left on device")
            return real(source, *rest, **more)

        monkeypatch.setattr("litebert.ablate.reuse.shutil.copytree", full)
        told = []
        made = second(others=[tmp_path / "out"], cells=["all"])
        run_all(made, told.append)
        assert any("cannot take it from out, cell shared: No space left" in line.get("text", "") for line in told)
        assert results(made)["all"][0]["failed"] is None

    def test_a_folder_without_a_table_is_named(self, second, tmp_path):
        with pytest.raises(UserError, match=r"--reuse .*nowhere: no table was begun there"):
            check(second(others=[tmp_path / "nowhere"]))
