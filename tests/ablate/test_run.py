"""Cells become figures: every table at `smoke`, nothing twice, and what stops or fails goes on from where it was."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

from litebert.ablate import run
from litebert.ablate.devices import Busy, check_devices, next_turn, pick_devices, seen_by
from litebert.ablate.grid import grid_names, read_grid
from litebert.ablate.job import new_job
from litebert.ablate.once import RESULT
from litebert.ablate.run import check, finished, make, results, run_all
from litebert.ablate.table import tabulate
from litebert.config import UserError
from litebert.infer.model import load
from litebert.train import pretrain as pretraining
from litebert.train.stopping import Stopped, signals
from tests.ablate.conftest import TWO


def quiet(_):
    pass


@pytest.mark.parametrize("name", grid_names())
def test_the_first_and_the_last_cell_of_every_table_run(name, text, tmp_path):
    cells = read_grid(name).cells
    less = name == "more-data"
    shards = [str(text / each) for each in (("shards-less", "shards") if less else ("shards", ""))]
    job = new_job(
        name, "smoke", tmp_path, shards[0], shards[1] if less else "", cells=[cells[0].name, cells[-1].name],
        device="cpu",
    )  # fmt: skip
    run_all(job, quiet)
    table = tabulate(job, results(job))
    rows = {row.cell: row for row in table.rows}
    for cell in (cells[0], cells[-1]):
        row = rows[cell.name]
        assert row.failed is None
        wanted = {column.key for column in table.columns}
        if job.grid.reference not in rows:
            wanted -= {"speed", "change"}
        assert set(row.figures) == wanted
        assert row.printed == cell.printed


def test_a_model_is_asked_by_its_own_head_and_by_one_on_frozen_states(recipe, job, monkeypatch):
    recipe.write_text(recipe.read_text().replace('"order", "next"', '"order", "next", "order-frozen", "next-frozen"'))
    asked, real = [], run.probe_pairs
    monkeypatch.setattr(run, "probe_pairs", lambda *args: asked.append(args[2]) or real(*args))
    made = job(cells=["shared"])
    run_all(made, quiet)
    found = results(made)["shared"][0]["figures"]
    final = [json.loads(line) for line in (made.folder("shared", 0) / "pretrain" / "metrics.jsonl").open()][-1]
    assert found["order"]["value"] == final["protocol"]["order_accuracy"]
    assert asked == ["sop", "nsp"], "each question once"
    assert found["next"]["value"] == found["next-frozen"]["value"]
    assert found["next"]["probed"]
    assert "probed" not in found["order"]
    assert "strength" in found["order-frozen"]


def test_a_cell_is_given_as_many_steps_or_as_much_time_as_another_took(recipe, job):
    recipe.write_text(
        TWO
        + """
[[cells]]
name = "so-many"
as_long_as = "own"
[[cells]]
name = "so-long"
as_long_as = "own"
by = "time"
"""
    )
    made = job(tasks=["none"], sets=["run.steps=3", "own:run.steps=5"])
    assert made.planned("so-long").cell.needs == ("own",)
    assert run.settings(made, "so-long", 0) != run.settings(made, "so-many", 0)
    run_all(made, quiet)
    seconds = run._lines(made.folder("own", 0) / "pretrain" / "metrics.jsonl", "train")[-1]["time"]["seconds"]
    runs = {each.name: run.whole_recipe(made, each, 0).run for each in made.plan}
    assert [runs[name].steps for name in ("shared", "own", "so-many", "so-long")] == [3, 5, 5, 0]
    assert runs["so-long"].budget_minutes == seconds / 60
    lasted = {name: run._lines(made.folder(name, 0) / "pretrain" / "metrics.jsonl", "train")[-1] for name in runs}
    assert [lasted[name]["step"] for name in ("shared", "own", "so-many")] == [3, 5, 5]
    found = results(made)
    assert all(not each["failed"] for done in found.values() for each in done)
    with pytest.raises(UserError, match="--task none leaves no task, and 1 more were named"):
        job(tasks=["none", "authors"])
    assert not any(column.key.startswith("task:") for column in tabulate(made, found).columns)


def test_a_finished_cell_is_never_run_again(job, monkeypatch):
    made = job()
    run_all(made, quiet)
    before = results(made)

    def never(*_):
        raise AssertionError("made again")

    monkeypatch.setattr(run, "make", never)
    run_all(made, quiet)
    assert results(made) == before
    model = load(made.folder("own", 0) / "pretrain")
    counted = before["own"][0]["figures"]["parameters"]["value"]
    assert counted == sum(each.numel() for each in model.encoder.parameters())
    assert not (made.folder("own", 0) / "pretrain" / "checkpoints").exists()


def test_killed_anywhere_it_ends_as_if_it_had_never_stopped(job, text, recipe, tmp_path, monkeypatch):
    sets = ["run.save_every=2"]
    whole = new_job(str(recipe), "smoke", tmp_path / "whole", str(text / "shards"), sets=sets, device="cpu")
    run_all(whole, quiet)
    made, real, count = job(sets=sets), pretraining.save, []

    class Killed(BaseException):
        """As a process dies: nothing catches it."""

    def dies(session, trainee, step, *rest):
        real(session, trainee, step, *rest)
        count.append(step)
        if len(count) == 5:  # in the second cell, after its second checkpoint
            raise Killed

    monkeypatch.setattr(pretraining, "save", dies)
    with pytest.raises(Killed):
        run_all(made, quiet)
    monkeypatch.setattr(pretraining, "save", real)
    assert finished(made, "shared", 0) is not None
    assert finished(made, "own", 0) is None
    told = []
    run_all(made, told.append)
    assert {"kind": "note", "text": "going on from step 4"} in told
    assert results(made) == results(whole)
    for cell in ("shared", "own"):
        ours, theirs = (load(each.folder(cell, 0) / "pretrain").network.state_dict() for each in (made, whole))
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_asked_to_stop_it_stops_at_once_and_keeps_what_it_has(job, monkeypatch):
    made, real = job(sets=["run.save_every=1000"]), pretraining.updates

    def interrupts(*args, **more):
        for number, update in enumerate(real(*args, **more)):
            if number == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            yield update

    monkeypatch.setattr(pretraining, "updates", interrupts)
    with pytest.raises(Stopped), signals() as asked:
        run_all(made, quiet, asked)
    monkeypatch.setattr(pretraining, "updates", real)
    assert not (made.folder("shared", 0) / RESULT).exists()
    told = []
    run_all(made, told.append)
    assert any(line.get("text", "").startswith("going on from step") for line in told)
    assert all(each["failed"] is None for done in results(made).values() for each in done)


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (UserError("loss or gradient were not finite in 5 steps in a row"), "loss or gradient were not finite"),
        (RuntimeError("CUDA out of memory. Tried to allocate 1 GiB"), "out of memory; set run.micro_batch lower"),
    ],
)
def test_a_cell_that_fails_says_why_and_a_rerun_tries_only_it(problem, reason, job, monkeypatch):
    made, real, begun = job(), pretraining.train, []

    def breaks(session, *rest):
        begun.append(session.recipe.model.sharing)
        if session.recipe.model.sharing == "all":
            raise problem
        return real(session, *rest)

    monkeypatch.setattr(pretraining, "train", breaks)
    run_all(made, quiet)
    assert begun == ["all", "none"]
    table = tabulate(made, results(made))
    assert [bool(row.failed) for row in table.rows] == [True, False]
    assert table.rows[0].failed.startswith(f"seed 0: {reason}")
    assert table.rows[0].figures == {}
    assert {each.verdict for each in table.findings} == {"not measured"}
    monkeypatch.setattr(pretraining, "train", lambda session, *rest: begun.append("again") or real(session, *rest))
    run_all(made, quiet)
    assert begun == ["all", "none", "again"]
    assert all(row.failed is None for row in tabulate(made, results(made)).rows)


def test_figures_that_are_no_numbers_fail_their_cell(job, monkeypatch):
    made = job()
    monkeypatch.setattr(run, "measure", lambda *_: iter([("masked", {"value": float("nan"), "error": 0.0})]))
    assert make(made, "own", 0, quiet)["failed"] == "masked is not a finite number"


def test_a_cell_whose_model_is_missing_waits_for_it(recipe, job):
    recipe.write_text(recipe.read_text().replace('name = "own"', 'name = "own"\nstart = "shared"'))
    made = job()
    assert make(made, "own", 0, quiet)["failed"] == "needs the cell shared, which has no result"


def test_other_settings_are_not_mixed_in(job):
    run_all(job(), quiet)
    with pytest.raises(UserError, match=r"was begun with other settings \(recipe\.model\.heads\); choose another --to"):
        run_all(job(sets=["model.heads=2"]), quiet)
    made = job()
    otherwise = replace(made, grid=replace(made.grid, smoke=replace(made.grid.smoke, tune="quick")))
    with pytest.raises(UserError, match=r"\(tasks\.authors\."):
        run_all(otherwise, quiet)
    run_all(job(sets=["run.micro_batch=4"]), quiet)  # how it is done is not what is done


def test_settings_that_earlier_versions_did_not_know_are_no_others(job):
    made = job()
    run_all(made, quiet)
    file, result = (made.folder("own", 0) / f"{name}.json" for name in ("settings", "result"))
    stored, before = json.loads(file.read_text()), result.stat().st_mtime_ns
    for phase in stored["recipe"]["phases"]:
        del phase["turns"]
    file.write_text(json.dumps(stored))
    run_all(made, quiet)
    assert result.stat().st_mtime_ns == before
    result.unlink()  # half-made, it goes on from its finished model
    model = made.folder("own", 0) / "pretrain" / "model" / "model.safetensors"
    trained = model.stat().st_mtime_ns
    run_all(made, quiet)
    assert model.stat().st_mtime_ns == trained
    stored = json.loads(file.read_text())
    stored["recipe"]["phases"][0]["turns"] = [16]
    file.write_text(json.dumps(stored))
    with pytest.raises(UserError, match=r"other settings \(recipe\.phases\)"):
        run_all(made, quiet)


def test_a_failed_cell_may_be_tried_with_other_settings(job, monkeypatch):
    real = pretraining.train

    def breaks(*_):
        raise UserError("not finite")

    monkeypatch.setattr(pretraining, "train", breaks)
    run_all(job(cells=["own"]), quiet)
    monkeypatch.setattr(pretraining, "train", real)
    made = job(cells=["own"], sets=["model.heads=2"])
    check(made)
    assert results(made)["own"][0]["failed"] == "not finite", "looking throws nothing away"
    run_all(made, quiet)
    assert results(made)["own"][0]["failed"] is None


def test_seeds_differ_and_a_second_one_is_added_to_the_first(job):
    run_all(job(cells=["own"]), quiet)
    stamp = (job().folder("own", 0) / RESULT).stat().st_mtime_ns
    both = job(cells=["own"], seeds=2)
    run_all(both, quiet)
    assert (both.folder("own", 0) / RESULT).stat().st_mtime_ns == stamp
    one, two = (load(both.folder("own", seed) / "pretrain").network.state_dict() for seed in (0, 1))
    assert any(not torch.equal(one[name], two[name]) for name in one)
    (row,) = tabulate(both, results(both)).rows
    assert len(row.figures["masked"].seeds) == 2


def command(recipe, text, to, *more):
    words = ["-m", "litebert", "ablate", str(recipe), "--to", str(to), "--shards", str(text / "shards")]
    return [sys.executable, *words, "--device", "cpu", *more]


def test_cells_run_side_by_side_and_a_stop_reaches_them_all(recipe, text, tmp_path):
    """Two processes at a time, which ours asks to stop; the same command then ends the table."""
    words = command(recipe, text, tmp_path / "out", "--devices", "cpu,cpu", "--set", "run.steps=16")
    started = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    folders = [tmp_path / "out" / cell / "seed-0" / "pretrain" / "metrics.jsonl" for cell in ("shared", "own")]
    until = time.monotonic() + 60
    while not all(folder.exists() for folder in folders) and time.monotonic() < until:
        time.sleep(0.02)
    started.send_signal(signal.SIGTERM)
    said = started.communicate(timeout=60)[1]
    assert started.returncode == 128 + signal.SIGTERM, said
    assert "the same command goes on from there" in said
    done = subprocess.run([*words, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    assert [row["failed"] for row in table["rows"]] == [None, None]
    assert {path.name for path in (tmp_path / "out").glob("table.*")} == {f"table.{end}" for end in
                                                                          ("md", "csv", "json", "png")}  # fmt: skip


def test_devices_are_a_number_or_names():
    assert pick_devices("cuda:1,cuda:3") == ["1", "3"]
    with pytest.raises(UserError, match="--devices 'gpu' is neither how many nor which"):
        pick_devices("gpu")
    with pytest.raises(UserError, match="--devices asks for GPU 99, counted from 0, and there are"):
        check_devices(pick_devices("0,99"))


def test_a_process_sees_its_device_alone(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [seen_by(name)["CUDA_VISIBLE_DEVICES"] for name in ("1", "cpu")] == ["1", ""]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert seen_by("1") == {"CUDA_VISIBLE_DEVICES": "6"}


def test_a_cell_waits_for_the_one_it_needs_and_no_longer(recipe, job):
    recipe.write_text(recipe.read_text().replace('name = "own"', 'name = "own"\nstart = "shared"'))
    made = job(seeds=2)
    turns = made.turns()
    assert next_turn(made, turns, {}) == ("shared", 0)
    assert next_turn(made, turns[1:], {0: Busy(("shared", 0), None, None)}) == ("shared", 1)
    assert next_turn(made, [("own", 0)], {0: Busy(("shared", 0), None, None)}) is None
    assert next_turn(made, [("own", 0)], {}) == ("own", 0)  # done or failed: it begins, and says so
