"""What a run goes on with is what it was begun with; whoever waits is told how it stands; a kill loses nothing."""

import json
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

import litebert
from litebert.config import UserError
from litebert.corpus.build import BuildOptions, build
from litebert.corpus.engines import Local
from litebert.recipe import TaskConfig, TuneConfig, TuneRecipe
from litebert.train import finetune as tuning
from litebert.train import objective, run, steps, tally, totals
from litebert.train import pretrain as training
from litebert.train.finetune import finetune
from litebert.train.stopping import Stopped
from tests.toys import ALONE, classes, toy_model, write_rows
from tests.train.conftest import metrics, same, weights

TUNE = TuneConfig(epochs=2, batch=8, rate=3e-3, log_every=4, head_dropout=0.1, precision="fp32")


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return toy_model(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def teach(toy, tmp_path):
    """teach('run', tune): the lines of a fine-tuning run."""
    file = write_rows(tmp_path / "a.csv", classes(80))

    def work(name, tune=TUNE, resume=False):
        told = []
        task = TaskConfig(train=str(file), texts=("review",), label=("stars",))
        finetune(TuneRecipe(model=str(toy), task=task, tune=tune), tmp_path / name, resume, ALONE, told.append)
        return told

    return work


class TestTheSameData:
    def test_shards_that_were_built_anew_of_other_text_are_refused(self, train, interrupted, tmp_path, tokenizer):
        def built(words):
            text = tmp_path / "text.txt"
            text.write_text("\n\n".join(f"{words} {number}. And so on. To the end." for number in range(60)))
            shutil.rmtree(tmp_path / "shards", ignore_errors=True)
            build([text], tokenizer(), tmp_path / "shards", BuildOptions(), Local(1))

        settings = {"data": {"shards": str(tmp_path / "shards")}, "folder": tmp_path / "half"}
        built("The ship sailed")
        interrupted(objective, "masked_loss", 5, lambda: train(**settings))
        built("A horse ran")
        with pytest.raises(UserError, match=r"holds other shards than those that this run was begun with; build those"):
            train(**settings, resume=True)
        built("The ship sailed")
        assert train(**settings, resume=True)[1][0]["text"].startswith("going on from step")

    @pytest.mark.parametrize("change", ["another example", "other names of the labels"])
    def test_examples_that_changed_are_refused(self, teach, tmp_path, killed_at_second_look, change):
        tune = replace(TUNE, epochs=4)
        killed_at_second_look(lambda: teach("run", tune))
        before = (tmp_path / "a.csv").read_text()
        more = before + "the film was fine .,good\n"
        (tmp_path / "a.csv").write_text(more if change == "another example" else before.replace(",good", ",alright"))
        with pytest.raises(
            UserError, match=r"the examples or labels are not those that .* was begun with; put the old"
        ):
            teach("run", tune, resume=True)
        (tmp_path / "a.csv").write_text(before)
        teach("run", tune, resume=True)


def test_fine_tunings_lines_are_the_same_after_a_stop_between_them(teach, tmp_path, interrupted):
    teach("whole")
    stopped = interrupted(tuning, "one_step", 5, lambda: teach("half"))
    assert stopped.step == 6
    teach("half", resume=True)
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "half")
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "half"))


class TestStepsThatAreNotFinite:
    @pytest.fixture
    def spoil(self, monkeypatch):
        """spoil({3, 4}): the gradient of those steps is not finite."""

        def work(numbers):
            real, count = steps.clip_gradients, iter(range(1, 1000))

            def spoiled(parameters, most):
                held = list(parameters)
                if next(count) in numbers:
                    next(each for each in held if each.grad is not None).grad.fill_(float("nan"))
                return real(held, most)

            monkeypatch.setattr(steps, "clip_gradients", spoiled)

        return work

    def test_they_are_counted_and_leave_the_loss_alone(self, teach, spoil):
        spoil({2, 3, 5})
        lines = [line for line in teach("run") if line["kind"] == "tune"]
        assert [line["skipped"] for line in lines][:3] == [2, 3, 3]
        assert 0.3 < lines[0]["loss"] < 1.5  # of classes as likely as each other: 0.7
        assert lines[0]["norm"] > 0

    def test_too_many_in_a_row_stop_the_run_before_it_keeps_a_model(self, teach, spoil, tmp_path):
        spoil(range(4, 100))
        with pytest.raises(
            UserError, match=r"not finite in 5 steps in a row; no checkpoint was written yet; begin again"
        ):
            teach("run", replace(TUNE, log_every=1))
        assert not (tmp_path / "run" / "best").exists()

    def test_a_model_whose_answers_are_not_numbers_is_never_the_best(self, teach, tmp_path, monkeypatch):
        real = tuning.listen
        monkeypatch.setattr(
            tuning, "listen", lambda *given: ((each, said * float("nan"), lost) for each, said, lost in real(*given))
        )
        with pytest.raises(UserError, match="the model's answers are not finite; no checkpoint was written yet"):
            teach("run")
        assert not (tmp_path / "run" / "model").exists()


class TestWhoeverWaits:
    def test_is_told_between_two_lines_and_the_record_is_the_same(self, train, teach, tmp_path, monkeypatch):
        plain, told = train()
        quiet = teach("quiet")
        for module in (tally, totals):
            monkeypatch.setattr(module, "SILENCE", 0.0)
        watched, more = train()
        talkative = teach("talkative")
        assert (
            len([line for line in more if line["kind"] == "train"])
            == 20
            > len([line for line in told if line["kind"] == "train"])
        )
        assert len([line for line in talkative if line["kind"] == "tune"]) > len(
            [line for line in quiet if line["kind"] == "tune"]
        )
        assert metrics(plain) == metrics(watched)
        assert metrics(tmp_path / "quiet") == metrics(tmp_path / "talkative")

    def test_a_signal_ends_the_measuring_of_steps(self, train, tmp_path, monkeypatch):
        real, calls = training.seconds_a_step, []

        def measured(*given):
            calls.append(given)
            os.kill(os.getpid(), signal.SIGTERM)
            return real(*given)

        monkeypatch.setattr(training, "seconds_a_step", measured)
        with pytest.raises(Stopped) as stopped:
            train(folder=tmp_path / "run", run={"steps": 0, "budget_minutes": 10.0})
        assert stopped.value.step == 0
        assert not (tmp_path / "run" / "plan.json").exists()

    @pytest.mark.parametrize(("share", "most"), [(1e-6, 3), (100.0, training.WARM + training.TIMED)])
    def test_measuring_takes_a_small_part_of_the_budget(self, train, monkeypatch, share, most):
        made, real = [], training.one_step
        monkeypatch.setattr(training, "one_step", lambda *given: (made.append(1), real(*given))[1])
        monkeypatch.setattr(training, "MEASURED", share)
        folder, _ = train(run={"steps": 0, "budget_minutes": 0.01})
        assert len(made) - json.loads((folder / "plan.json").read_text())["steps"] == most

    def test_a_step_that_is_slow_for_once_is_not_taken_for_the_usual(self, train, monkeypatch):
        made, real = [], training.one_step

        def slow_once(*given):
            made.append(1)
            time.sleep(1.0 if len(made) == training.WARM + 5 else 0.0)
            return real(*given)

        monkeypatch.setattr(training, "one_step", slow_once)
        monkeypatch.setattr(training, "MEASURED", 100.0)
        monkeypatch.setattr(training, "TIMED", 20)
        folder, _ = train(run={"steps": 0, "budget_minutes": 0.01})
        assert json.loads((folder / "plan.json").read_text())["seconds_a_step"][0] < 1.0 / 20

    @pytest.mark.parametrize(
        ("is_fresh", "share", "usual"),
        [
            (lambda step: step // training.BLOCK % 3 > 0, 100.0, True),
            (lambda step: True, 100.0, False),
            (lambda step: step < 7, 0.5, True),  # all that a small budget has time for
        ],
        ids=["most", "all", "the first"],
    )
    def test_steps_that_are_recorded_are_not_taken_for_the_usual(self, is_fresh, share, usual, train, monkeypatch):
        """Of new shapes they take as long as many, and on long texts nearly every second step is of one: only blocks
        without them count, and if there is none, the quickest."""

        class Recorder(training.Replay):
            count = 0

            def __call__(self, parts):
                self.fresh = is_fresh(self.count)
                self.count += 1
                time.sleep(0.1 if self.fresh else 0.0)
                return self.work(parts)

        real = training.work_of
        monkeypatch.setattr(training, "work_of", lambda *given: Recorder(real(*given)))
        for name, count in (("WARM", 8), ("TIMED", 24)):
            monkeypatch.setattr(training, name, count)
        monkeypatch.setattr(training, "MEASURED", share)
        folder, _ = train(run={"steps": 0, "budget_minutes": 0.01})
        found = json.loads((folder / "plan.json").read_text())["seconds_a_step"][0]
        assert (found < 0.1) == usual

    def test_a_first_step_that_compiles_does_not_end_the_measuring(self, train, monkeypatch):
        """It may take longer than all that is to be measured; the second, which is recorded, is no usual one either."""
        made, real = [], training.one_step

        def slow_first(*given):
            made.append(1)
            time.sleep({1: 1.0, 2: 0.1, 3: 0.1}.get(len(made), 0.0))
            return real(*given)

        monkeypatch.setattr(training, "one_step", slow_first)
        monkeypatch.setattr(training, "MEASURED", 2.0)
        folder, _ = train(run={"steps": 0, "budget_minutes": 0.01})
        assert json.loads((folder / "plan.json").read_text())["seconds_a_step"][0] < 0.08


def test_a_kill_while_a_checkpoint_takes_its_own_place_keeps_one(train, interrupted, monkeypatch, tmp_path):
    """As happens where a stop came in the middle of a look: the same step is saved twice."""
    whole, _ = train()
    half = tmp_path / "half"
    interrupted(objective, "masked_loss", 13, lambda: train(folder=half))
    at = half / "checkpoints" / "step-00000015"
    config, kept, moments, state = run.read_checkpoint(at)
    model = litebert.load(at)
    opened, rename = run.Run(half), Path.rename

    def killed(folder, to):
        if folder.name.endswith(".partial"):
            raise KeyboardInterrupt
        return rename(folder, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            opened.save(15, (config, model.network.head_configs, kept), model.tokenizer, moments, state, 2)
    opened.close()
    assert not at.exists()
    again, told = train(folder=half, resume=True)
    assert told[0]["text"] == "going on from step 15"
    assert same(weights(whole), weights(again))


def test_a_board_that_cannot_be_written_does_not_stop_a_run(train, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tensorboard").write_text("in the way")
    folder, _ = train(folder=tmp_path / "run")
    assert weights(folder)


def test_the_largest_seed_is_a_seed(teach):
    assert teach("run", replace(TUNE, steps=2, seed=(1 << 63) - 1))[-1]["text"].startswith("the model is in")


def test_a_finished_run_without_its_record_says_so(train):
    folder, _ = train()
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match=r"metrics.jsonl is gone, and with it what this run scored"):
        train(folder=folder, resume=True)
