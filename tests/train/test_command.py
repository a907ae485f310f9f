"""`litebert pretrain` on the command line: what it prints, where it prints it, and its mistakes in one line."""

import io
import json
import os
import pty
import subprocess
import sys

import pytest
from rich.console import Console

from litebert.cli import train as commands
from litebert.cli.train import Panel, as_panel, as_text, panel_rows
from litebert.recipe import apply_sets
from litebert.strict import to_toml


@pytest.fixture
def recipe(table, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(apply_sets(table(evaluate={"every": 10}), [])))
    return path


def run(*words, **more):
    return subprocess.run(
        [sys.executable, "-m", "litebert", "pretrain", *map(str, words)], capture_output=True, text=True, **more
    )


def test_lines_go_to_the_error_stream_and_json_to_the_other(recipe, tmp_path):
    done = run(recipe, "--to", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kind"] == "final"
    assert 0 <= found["protocol"]["masked_accuracy"] <= 1
    lines = done.stderr.splitlines()
    assert [line.split(",")[0] for line in lines if line.startswith("step") and " of " in line.split(",")[0]] == [
        f"step {step} of 20" for step in (5, 10, 15, 20)
    ]
    assert any(line.startswith("step 10; held out: masked ") for line in lines)
    assert any(line.startswith("at the end 20; held out: ") for line in lines)
    assert lines[-1] == f"the model is in {tmp_path / 'run' / 'model'}"


def test_a_terminal_sees_a_panel(recipe, tmp_path):
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "litebert", "pretrain", str(recipe), "--to", str(tmp_path / "run")],
        stderr=follower,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
    )
    os.close(follower)
    seen = b""
    while True:
        try:
            more = os.read(leader, 65536)
        except OSError:
            break
        if not more:
            break
        seen += more
    assert process.wait() == 0
    text = seen.decode()
    for what in ("masked loss", "order accuracy", "learning rate", "pieces a second", "share of the device's peak"):
        assert what in text
    for what in ("phase", "time left", "held out: masked", "╭"):
        assert what in text


LINE = {
    "kind": "train",
    "step": 1200,
    "steps": 4000,
    "phase": 2,
    "passes": 6,
    "rate": 4e-4,
    "masked_loss": 3.25,
    "masked_accuracy": 0.441,
    "next_loss": 0.5,
    "next_accuracy": 0.75,
    "norm": 1.5,
    "skipped": 1,
    "pieces": 123456789,
    "gradient_bytes": 47_000_000,
    "time": {"seconds": 60.0, "pieces_per_second": 7.5e5, "share_of_peak": 0.55, "seconds_left": 3725.0},
}


def test_the_panel_and_the_plain_line_say_the_same():
    console = Console(file=io.StringIO(), width=100)
    console.print(as_panel(LINE))
    drawn, plain = console.file.getvalue(), as_text(LINE)
    for name, value in panel_rows(LINE):
        assert name in drawn
        assert value in drawn
        assert f"{name} {value}" in plain
    assert "1,200 of 4,000" in drawn
    assert "1:02:05" in drawn
    assert "47.0 MB" in drawn


def test_a_terminal_sees_paths_as_they_are():
    panel = Panel()
    panel.console = Console(file=io.StringIO(), width=100)
    for path in ("runs/exp[lr]/model", "runs/[/b]/model", "runs/:smile:/model"):
        panel({"kind": "note", "text": f"the model is in {path}"})
        assert panel.console.file.getvalue().splitlines()[-1] == f"the model is in {path}"


def test_a_model_to_start_from_and_a_teacher_may_have_any_name(monkeypatch, tmp_path):
    chosen = []
    monkeypatch.setattr(commands, "run", lambda recipe, *_: chosen.append(recipe))
    commands.pretrain("cpu-demo", to=tmp_path, init_from="runs/😀 \x7f")
    commands.distill("cpu-demo", to=tmp_path, teacher="runs/😀 \x7f")
    assert [chosen[0].run.init_from, chosen[1].distill.teacher] == ["runs/😀 \x7f"] * 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "say where the run shall live: --to DIRECTORY"),
        (["--to", "x"], "name a recipe, or go on with a run by --resume"),
        (
            ["--to", "x", "--resume", "--set", "run.steps=1"],
            "--set, --init-from and --teacher change a recipe; name it",
        ),
        (["albert-bas-v1", "--to", "x"], "no recipe 'albert-bas-v1'; did you mean 'albert-base-v1'?"),
        (["cpu-demo", "--to", "x"], "say which shards to train on: --set data.shards=FOLDER"),
        (["cpu-demo", "--to", "x", "--set", "run.stepz=1"], "unknown key 'stepz' in [run]; did you mean 'steps'?"),
        (["cpu-demo", "--to", "x", "--set", "phases=[{rate=0}]"], "[phases[0]]: rate = 0.0 must be above 0"),
        (
            ["cpu-demo", "--to", "x", "--set", "run.budget_minutes=1"],
            "[run]: steps and budget_minutes both say how long",
        ),
        (["cpu-demo", "--to", "x", "--device", "tpu"], "--device 'tpu'; allowed: auto, cuda, cpu"),
    ],
)
def test_a_mistake_is_one_line(words, sentence, tmp_path):
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"litebert: {sentence}")
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())  # nothing was begun
