"""Asked to stop: where it is heard, and that nothing is lost or done twice."""

import os
import signal

import pytest

from litebert.recipe import TaskConfig, TuneConfig, TuneRecipe
from litebert.train import finetune, heldout
from litebert.train.seeds import finetune_seeds
from litebert.train.stopping import Stopped, signals
from tests.toys import ALONE, classes, toy_model, write_rows
from tests.train.conftest import metrics, same, weights


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_whoever_waits_around_it_hears_of_it_and_a_second_signal_is_not_held_back(signum):
    usual = signal.getsignal(signum)
    with signals() as outer:
        with signals() as inner:
            os.kill(os.getpid(), signum)
            assert signal.getsignal(signum) is usual
        assert (inner, outer) == ([signum], [signum])
        assert signal.getsignal(signum) is usual  # not caught again
    assert signal.getsignal(signum) is usual
    with signals() as outer:
        with signals():
            pass
        os.kill(os.getpid(), signum)
    assert outer == [signum]


def test_the_last_look_is_not_waited_for(train, interrupted, monkeypatch):
    monkeypatch.setattr(heldout, "AT_ONCE", 2)
    long = {"evaluate": {"every": 0, "final_examples": 20}}
    whole, _ = train(**long)
    looked = []
    original = heldout.count
    monkeypatch.setattr(heldout, "count", lambda *args: looked.append(1) or original(*args))
    stopped = interrupted(heldout, "count", 3, lambda: train(folder=whole.parent / "half", **long))
    assert len(looked) == 4  # and not the ten, and another look with the run's own masking
    assert stopped.step == metrics(whole)[-1]["step"]
    assert not (whole.parent / "half" / "model").exists()
    again, _ = train(folder=whole.parent / "half", resume=True, **long)
    assert same(weights(whole), weights(again))
    assert metrics(whole) == metrics(again)


def test_a_look_on_the_way_is_made_to_its_end(train, interrupted, monkeypatch):
    monkeypatch.setattr(heldout, "AT_ONCE", 2)
    often = {"evaluate": {"every": 10, "examples": 20, "final_examples": 4}}
    whole, _ = train(**often)
    looks = 10 + 10  # by the protocol and by the run's own masks, before the first step; then at step 10
    half = whole.parent / "half"
    stopped = interrupted(heldout, "count", looks + 3, lambda: train(folder=half, **often))
    assert (half / "checkpoints" / f"step-{stopped.step:08}").is_dir()
    assert [line["step"] for line in metrics(half) if line["kind"] == "held-out"] == [0, 10]
    again, _ = train(folder=half, resume=True, **often)
    assert same(weights(whole), weights(again))
    assert metrics(whole) == metrics(again)


def test_a_signal_after_the_last_step_of_a_seed_keeps_the_next_from_beginning(tmp_path, monkeypatch):
    file = write_rows(tmp_path / "a.csv", classes(60))
    task = TaskConfig(train=str(file), texts=("review",), label=("stars",))
    tune = TuneConfig(steps=3, epochs=0, batch=8, rate=1e-3, head_dropout=0.0)
    recipe = TuneRecipe(model=str(toy_model(tmp_path / "toy")), task=task, tune=tune)
    finish = finetune.finish

    def late(*args):
        os.kill(os.getpid(), signal.SIGTERM)
        return finish(*args)

    with monkeypatch.context() as patch:
        patch.setattr(finetune, "finish", late)
        with pytest.raises(Stopped):
            finetune_seeds(recipe, tmp_path / "runs", 2, False, ALONE, lambda _: None)
    assert [each.name for each in (tmp_path / "runs").iterdir()] == ["seed-0"]
    found = finetune_seeds(recipe, tmp_path / "runs", 2, True, ALONE, lambda _: None)
    assert found["seeds"] == [0, 1]
