"""Curves: what is drawn is what the run wrote."""

import json

import pytest

from litebert.config import UserError
from litebert.report.curves import panels_of, plot_curves, read_run, series


def write(folder, steps=(10, 20), extra=""):
    folder.mkdir()
    lines = [{"kind": "held-out", "step": 0, "protocol": {"masked_accuracy": 0.0, "order_accuracy": 0.5}}]
    for step in steps:
        timing = {"seconds": 60.0 * step, "pieces_per_second": 5.0}
        lines.append(
            {"kind": "train", "step": step, "pieces": 100 * step, "masked_loss": 5 - step / 10, "time": timing}
        )
    lines.append({"kind": "final", "step": steps[-1], "protocol": {"masked_accuracy": 0.4, "order_accuracy": 0.7}})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + extra)
    return folder


def write_tuned(folder, name="accuracy", losses=(0.9, 0.6)):
    """Looks at the dev set after steps 15 and 40, lines after 20 and 40; each took half a minute."""
    folder.mkdir()
    timing = {"seconds": 30.0, "examples_per_second": 8.0}
    tuned = [
        {"kind": "tune", "step": step, "loss": loss, "time": timing}
        for step, loss in zip((20, 40), losses, strict=True)
    ]
    looks = [
        {"kind": "dev", "step": step, "scores": [{"name": name, "value": value}, {"name": "other", "value": 0.1}]}
        for step, value in ((15, 0.8), (40, 0.7))
    ]
    final = {"kind": "final", "step": 40, "best_step": 15, "scores": looks[0]["scores"]}
    lines = (looks[0], *tuned, looks[1], final)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def titles(*folders):
    return [title for title, *_ in panels_of({str(folder): read_run(folder) for folder in folders})]


def test_points_are_the_runs_own(tmp_path):
    lines = read_run(write(tmp_path / "a"))
    assert series(lines, "train", None, ("masked_loss",), "pieces") == [(1000, 4.0), (2000, 3.0)]
    assert series(lines, "held-out", "protocol", ("masked_accuracy",), "minutes") == [(0.0, 0.0), (20.0, 0.4)]
    assert series(lines, "held-out", "protocol", ("next_accuracy", "order_accuracy"), "steps") == [(0, 0.5), (20, 0.7)]


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_several_runs_share_a_picture(ending, tmp_path):
    pytest.importorskip("matplotlib")
    runs = [write(tmp_path / name) for name in ("grown", "not-grown")]
    found = plot_curves(runs, tmp_path / "pictures" / f"curves.{ending}")
    assert (tmp_path / "pictures" / f"curves.{ending}").stat().st_size > 5000
    assert found["runs"][str(runs[0])] == {"masked_accuracy": 0.4, "order_accuracy": 0.7}


def test_a_fine_tuning_run_has_loss_its_first_score_and_speed(tmp_path):
    lines = read_run(write_tuned(tmp_path / "mine", losses=(None, 0.6)))
    assert series(lines, "tune", None, ("loss",), "steps") == [(40, 0.6)]  # nothing was learned before
    assert series(lines, "dev", "first", ("accuracy",), "minutes") == [(0.375, 0.8), (1.0, 0.7)]
    assert series(lines, "tune", "time", ("examples_per_second",), "minutes") == [(0.5, 8.0), (1.0, 8.0)]
    assert titles(tmp_path / "mine") == ["fine-tuning: loss", "dev set: accuracy", "fine-tuning: examples a second"]


def test_runs_of_both_kinds_are_each_in_the_panels_they_have(tmp_path):
    pytest.importorskip("matplotlib")
    runs = [write(tmp_path / "base"), write_tuned(tmp_path / "mine"), write_tuned(tmp_path / "tags", "entity_f1")]
    assert titles(*runs)[3:] == [
        "training: pieces a second",
        "fine-tuning: loss",
        "dev set: accuracy",
        "dev set: entity_f1",
        "fine-tuning: examples a second",
    ]
    found = plot_curves(runs, tmp_path / "curves.svg")["runs"]
    assert found[str(runs[0])]["masked_accuracy"] == 0.4
    assert found[str(runs[1])] == {"accuracy": 0.8, "other": 0.1}
    drawn = (tmp_path / "curves.svg").read_text()
    assert "<!-- dev set: entity_f1 -->" in drawn
    assert [drawn.count(f"<!-- {name} -->") for name in ("base", "mine", "tags")] == [1, 1, 1]  # in one legend each
    with pytest.raises(UserError, match="mine is a fine-tuning run, which counts no pieces; draw it --over steps"):
        plot_curves(runs, tmp_path / "a.png", "pieces")


def test_what_cannot_be_drawn_is_one_line(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(UserError, match="holds no metrics"):
        read_run(tmp_path)
    write_tuned(tmp_path / "seed-1")
    with pytest.raises(UserError, match=r"not the directory of a run; give those inside it: seed-1$"):
        read_run(tmp_path)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "metrics.jsonl").touch()
    with pytest.raises(UserError, match="nothing is logged yet that could be drawn"):
        plot_curves([tmp_path / "begun"], tmp_path / "a.png")
    with pytest.raises(UserError, match=r"line 5, is not JSON"):
        read_run(write(tmp_path / "broken", extra="{\n{}"))
    assert len(read_run(write(tmp_path / "killed", extra='{"kind": "tr'))) == 4
    run = write(tmp_path / "good")
    with pytest.raises(UserError, match="--over 'hours'; allowed: steps, pieces, minutes"):
        plot_curves([run], tmp_path / "a.png", "hours")
    with pytest.raises(UserError, match="cannot write"):
        plot_curves([run], tmp_path / "a.nonsense")
