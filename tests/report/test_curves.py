"""Curves: what is drawn is what the run wrote."""

import json

import pytest

from litebert.config import UserError
from litebert.report.curves import plot_curves, read_run, series


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


def test_what_cannot_be_drawn_is_one_line(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(UserError, match="holds no metrics"):
        read_run(tmp_path)
    with pytest.raises(UserError, match=r"line 5, is not JSON"):
        read_run(write(tmp_path / "broken", extra="{\n{}"))
    assert len(read_run(write(tmp_path / "killed", extra='{"kind": "tr'))) == 4
    run = write(tmp_path / "good")
    with pytest.raises(UserError, match="--over 'hours'; allowed: steps, pieces, minutes"):
        plot_curves([run], tmp_path / "a.png", "hours")
    with pytest.raises(UserError, match="cannot write"):
        plot_curves([run], tmp_path / "a.nonsense")
