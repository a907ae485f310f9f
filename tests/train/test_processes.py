"""One process, several, and several parts of a batch: the same losses and the same weights."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from litebert.recipe import apply_sets
from litebert.strict import UserError, to_toml
from litebert.train.processes import joined, pick_device
from tests.train import worker
from tests.train.conftest import gap, metrics, weights


@pytest.fixture
def spread(tmp_path, table, together):
    """spread('name', 2, run={…}): the folder of a run by two processes."""

    def run(name, count, *more, phases=None, **sections):
        recipe, folder = tmp_path / f"{name}.toml", tmp_path / name
        recipe.write_text(to_toml(apply_sets(table(phases, **sections), [])))
        ended = together(worker.forked, name, count, str(recipe), str(folder), *more)
        assert [code for code, _ in ended] == [0] * count, "\n".join(told[-3000:] for _, told in ended)
        for _, told in ended:
            assert "Traceback" not in told
            assert "destroy_process_group" not in told  # everyone left properly
        return folder

    return run


def losses(folder):
    return torch.tensor(
        [[line["masked_loss"], line["order_loss"], line["norm"]] for line in metrics(folder) if line["kind"] == "train"]
    )


@pytest.mark.parametrize(("precision", "tolerance"), [("fp64", 1e-10), ("fp32", 1e-5)])
def test_one_process_two_processes_and_four_parts_are_the_same_run(precision, tolerance, train, spread):
    settings = {"precision": precision, "log_every": 1}
    alone, _ = train(run=settings)
    in_parts, _ = train(run=settings | {"micro_batch": 2})
    by_two = spread("two", 2, run=settings)
    for other in (in_parts, by_two):
        assert gap(weights(alone), weights(other)) < tolerance
        torch.testing.assert_close(losses(alone), losses(other), rtol=0, atol=tolerance)
    last = metrics(by_two)[-2]
    assert last["gradient_bytes"] == sum(t.numel() for t in weights(alone).values()) * (8 if precision == "fp64" else 4)
    assert metrics(alone)[-2]["gradient_bytes"] == 0
    assert last["pieces"] == metrics(alone)[-2]["pieces"]
    assert metrics(by_two)[-1]["protocol"] == pytest.approx(metrics(alone)[-1]["protocol"], abs=1e-4)


def test_muon_by_two_processes_is_the_same_run(train, spread):
    settings = {"optimizer": {"kind": "muon"}, "run": {"precision": "fp64", "steps": 6}}
    alone, _ = train(**settings)
    assert gap(weights(alone), weights(spread("two", 2, **settings))) < 1e-10


def test_lengths_in_turn_by_two_processes_are_the_same_run(train, spread):
    settings = {"phases": [{"length": 16, "batch": 16, "rate": 0.01, "turns": [64, 32]}], "run": {"precision": "fp64"}}
    alone, _ = train(**settings)
    by_two = spread("two", 2, **settings)
    assert gap(weights(alone), weights(by_two)) < 1e-10
    torch.testing.assert_close(losses(alone), losses(by_two), rtol=0, atol=1e-10)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.parametrize("what", ["teacher", "dial"])
def test_a_teacher_or_a_dial_by_two_processes_is_the_same_run(what, parallel, train, spread, tmp_path):
    teacher, _ = train(run={"steps": 1}, model={"sharing": "none"})
    run = {"precision": "fp64", "steps": 6}
    if what == "dial":
        settings = {"dial": {"depths": [1, 2]}}
    else:
        distill = {"teacher": str(teacher), "hidden": 1.0, "attention": 1.0}
        settings = {"distill": distill, "model": {"sharing": "none", "layers": 2}}
    alone, _ = train(run=run, **settings)
    by_two = spread("two", 2, run=run | {"parallel": parallel, "micro_batch": 2}, **settings)
    assert gap(weights(alone), weights(by_two)) < 1e-6
    one, other = (
        [{k: v for k, v in line.items() if k.endswith("_loss")} for line in metrics(folder) if line["kind"] == "train"]
        for folder in (alone, by_two)
    )
    assert one[-1] == pytest.approx(other[-1], abs=1e-8)
    assert len(one[-1]) >= 5


@pytest.mark.parametrize("kind", ["lamb", "adamw"])
@pytest.mark.parametrize("model", [{"sharing": "all"}, {"sharing": "none"}], ids=lambda m: m["sharing"])
def test_sharded_weights_train_as_whole_ones_do(kind, model, train, spread):
    settings = {"model": model, "optimizer": {"kind": kind, "correct_bias": kind == "adamw"}}
    whole, _ = train(**settings)
    parts = spread("parts", 2, run={"parallel": "fsdp", "micro_batch": 2}, **settings)
    assert gap(weights(whole), weights(parts)) < 1e-5


def test_sharded_and_whole_copies_agree_and_a_run_may_change_its_processes(spread, train):
    copies = spread("copies", 2)
    parts = spread("parts", 2, run={"parallel": "fsdp"})
    assert gap(weights(copies), weights(parts)) < 1e-5
    (copies / "model" / "litebert.json").unlink()
    for folder in (copies / "checkpoints" / "step-00000020", copies / "model"):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    again, _ = train(folder=copies, resume=True)  # begun by two, ended by one
    assert gap(weights(again), weights(parts)) < 1e-5


def test_growth_across_processes(spread, train):
    phases = [
        {"passes": 2, "length": 16, "batch": 8, "rate": 0.01, "warmup": 2},
        {"passes": 4, "length": 32, "batch": 8, "rate": 0.005},
    ]
    settings = {"model": {"sharing": "none"}, "run": {"steps": 8}}
    alone, _ = train(phases=phases, **settings)
    together = spread("grown", 2, phases=phases, model={"sharing": "none"}, run={"steps": 8, "parallel": "fsdp"})
    assert gap(weights(alone), weights(together)) < 1e-5


def test_a_pooler_that_nothing_teaches_does_not_stop_several_processes(spread, train):
    settings = {"data": {"objective": "mlm"}, "run": {"steps": 6}}
    alone, _ = train(**settings)
    assert gap(weights(alone), weights(spread("pooler", 2, **settings))) < 1e-5


def test_a_signal_to_all_processes_saves_once_and_says_so_once(tmp_path, table):
    recipe, folder = tmp_path / "r.toml", tmp_path / "run"
    recipe.write_text(to_toml(apply_sets(table(run={"steps": 100_000}), [])))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "litebert"]
    words = ["pretrain", str(recipe), "--to", str(folder), "--device", "cpu"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*launch, *words], env=environment, stderr=subprocess.PIPE, text=True)
    metrics_file = folder / "metrics.jsonl"
    while not metrics_file.is_file() or not metrics_file.read_text():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    for child in children:
        os.kill(int(child), signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    assert said.count("all of it is saved; go on with") == 1
    assert len(list((folder / "checkpoints").glob("step-*"))) >= 1
    assert not list((folder / "checkpoints").glob(".*"))


def test_one_process_that_is_asked_to_stop_in_the_last_look_stops_all(spread):
    long = {"evaluate": {"every": 0, "final_examples": 1000}}
    folder = spread("asked", 2, "--asked-in-last-look", **long)
    assert not (folder / "model").exists()
    assert [line["kind"] for line in metrics(folder)][-1] == "train"
    spread("asked", 2, "--resume", **long)
    assert [line["kind"] for line in metrics(folder)][-1] == "final"


def test_a_mistake_is_told_once(tmp_path, table):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "litebert"]
    done = subprocess.run(
        [*launch, "pretrain", "--resume", "--to", str(tmp_path / "none"), "--device", "cpu"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert done.stderr.count("there is no run in") == done.stderr.count("litebert: there is no run in") == 1
    assert "gloo" not in done.stderr


@pytest.mark.parametrize(
    ("how", "code", "sentence"),
    [("lacks", 2, "litebert (process 1): no shards under nowhere"), ("breaks", 1, "RuntimeError: a bug")],
)
def test_a_process_that_fails_says_why_and_the_others_point_to_it(how, code, sentence, together, tmp_path, table):
    recipe = tmp_path / "r.toml"
    recipe.write_text(to_toml(apply_sets(table(), [])))
    words = ["pretrain", str(recipe), "--to", str(tmp_path / "run"), "--device", "cpu"]
    first, second = together(worker.one_fails, "fails", 2, how, *words)
    assert second[0] == code
    assert sentence in second[1]
    assert first == (1, "litebert: another process of this run ended; see what it said\n")


def test_the_process_that_finds_no_gpu_left_says_how_many_were_started(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    for name, value in {"WORLD_SIZE": 16, "RANK": 9, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 8}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(UserError, match=r"^8 processes on a machine with 1 GPUs; start fewer$"), joined():
        pass
    assert pick_device("auto", 0, beside=8) == torch.device("cuda", 0)  # each is shown its own GPU as the only one
