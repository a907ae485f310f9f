"""Results become a table: means and errors by hand, verdicts by the rule that it states, files that agree."""

import csv
import io
import json
import math
import struct
from dataclasses import replace
from types import SimpleNamespace

import pytest

from litebert.ablate.grid import Finding
from litebert.ablate.run import SETTINGS, results
from litebert.ablate.table import Column, Figure, budget, judge, pooled, rule, tabulate
from litebert.ablate.write import as_csv, markdown, picture, tells, write_table

ACCURACY = Column("masked", "masked accuracy", "MLM", "percent")


def figures(**values):
    """One column, by cell: figures(a=(50, 1), b=(48, 1))."""
    return {cell: {"masked": Figure(float(value), float(error), ())} for cell, (value, error) in values.items()}


def verdict(way, than, found, **more):
    finding = Finding(claim="x", columns=("masked",), cell="a", way=way, than=than, **more)
    return judge(finding, ACCURACY, found)


@pytest.mark.parametrize(
    ("way", "a", "b", "expected"),
    [
        ("above", (53, 1), (50, 1), "seen"),  # 3 is more than 2·√2
        ("above", (52, 1), (50, 1), "within noise"),
        ("above", (50, 1), (52, 1), "within noise"),
        ("above", (50, 1), (53, 1), "not seen"),
        ("below", (50, 1), (53, 1), "seen"),
        ("below", (53, 1), (50, 1), "not seen"),
        ("above", (50, 0), (50, 0), "within noise"),
    ],
)
def test_a_difference_counts_from_twice_its_standard_error_on(way, a, b, expected):
    found = verdict(way, ("b",), figures(a=a, b=b))
    assert found.verdict == expected
    assert found.difference == a[0] - b[0]
    assert found.error == pytest.approx(math.hypot(a[1], b[1]))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((50.1, 0.1), (50, 0.1), "seen"),  # 0.1 and two errors are within 0.5
        ((50.1, 0.5), (50, 0.5), "within noise"),  # too uncertain to say
        ((50.6, 0.1), (50, 0.1), "within noise"),  # outside, but not by more than its error
        ((51, 0.1), (50, 0.1), "not seen"),
        ((49, 0.1), (50, 0.1), "not seen"),
    ],
)
def test_that_two_are_the_same_needs_a_margin_and_certainty(a, b, expected):
    assert verdict("near", ("b",), figures(a=a, b=b), margin=0.5).verdict == expected


def test_best_of_several_must_beat_each_and_is_refuted_by_one():
    assert verdict("above", ("b", "c"), figures(a=(60, 1), b=(50, 1), c=(55, 1))).verdict == "seen"
    close = verdict("above", ("b", "c"), figures(a=(60, 1), b=(50, 1), c=(59, 1)))
    assert (close.verdict, close.difference) == ("within noise", 1.0)
    assert verdict("above", ("b", "c"), figures(a=(60, 1), b=(50, 1), c=(70, 1))).verdict == "not seen"


def test_chance_is_a_number_without_error():
    found = verdict("above", (), figures(a=(51, 0.4)), value=50.0)
    assert (found.verdict, found.error) == ("seen", 0.4)
    assert verdict("above", (), figures(a=(50.7, 0.4)), value=50.0).verdict == "within noise"


def test_what_was_not_run_is_not_judged():
    assert verdict("above", ("b",), figures(a=(50, 1))).verdict == "not measured"
    assert verdict("above", ("a",), figures(b=(50, 1))).verdict == "not measured"


def store(job, cell, seed, failed=None, **values):
    """A result as a cell leaves it: masked=(0.5, 0.01)."""
    folder = job.folder(cell, seed)
    folder.mkdir(parents=True)
    named = {key.replace("task_", "task:"): {"value": v, "error": e} for key, (v, e) in values.items()}
    where = {"device": "an abacus", "torch": "2.11", "litebert": "0.1"}
    told = {"cell": cell, "seed": seed, "figures": named, "failed": failed, "where": where}
    (folder / "result.json").write_text(json.dumps(told))
    assert not (folder / SETTINGS).exists()
    return job


@pytest.fixture
def filled(job):
    made = job(seeds=2)
    store(made, "shared", 0, masked=(0.40, 0.003), parameters=(11_683_584, 0), task_authors=(0.70, 0.02))
    store(made, "shared", 1, masked=(0.42, 0.003), parameters=(11_683_584, 0), task_authors=(0.74, 0.02))
    store(made, "own", 0, masked=(0.50, 0.004), parameters=(89_000_000, 0), task_authors=(0.60, 0.02))
    return store(made, "own", 1, failed="out of memory")


def test_errors_join_the_set_with_the_seeds_pooled_over_the_column(filled):
    rows = {row.cell: row for row in tabulate(filled, results(filled)).rows}
    shared, own = rows["shared"].figures["masked"], rows["own"].figures["masked"]
    assert shared.value == pytest.approx(41.0)
    variance = pooled([[40.0, 42.0], [50.0]])
    assert variance == pytest.approx(2.0)
    assert shared.error == pytest.approx(math.sqrt(0.3**2 + variance / 2))
    assert own.error == pytest.approx(math.sqrt(0.4**2 + variance))  # one seed of it: its mean is less certain
    assert rows["shared"].figures["average"].value == pytest.approx(72.0)
    assert rows["own"].failed == "seed 1: out of memory"
    assert rows["shared"].failed is None


def test_one_seed_says_that_it_is_one():
    assert "with one seed, how much seeds differ is not in it" in rule(1)
    assert "the mean of 3 seeds" in rule(3)


def test_the_page_says_everything(filled):
    table = tabulate(filled, results(filled))
    text = markdown(table)
    assert "| shared | 11.7M | 41.00 ± " in text
    assert "| 54.0 |" in text  # what the paper printed, beside ours
    assert "paper's RACE" in text  # and what it printed of a column that we lack
    assert "Not whole: own, seed 1: out of memory." in text
    assert "| own layers are better | masked accuracy | seen | +9.00 ± " in text
    assert "| own layers are better | average of the tasks | not seen | -12.00 ± " in text
    assert rule(2) in text
    assert "its verdicts mean nothing" in text  # at smoke
    assert "nobody, table 0" in text
    assert text.endswith("Made on an abacus, torch 2.11, litebert 0.1.\n")


def test_noise_is_called_noise(job):
    made = job()
    store(made, "shared", 0, masked=(0.40, 0.02))
    store(made, "own", 0, masked=(0.41, 0.02))
    text = markdown(tabulate(made, results(made)))
    assert "1 of 2 comparisons are within noise: this budget with these seeds cannot tell." in text
    assert "not measured" in text  # no task was run


def test_files_hold_the_same_numbers(filled, tmp_path):
    table = tabulate(filled, results(filled))
    names = [path.name for path in write_table(table, tmp_path / "files")]
    assert names == ["table.md", "table.csv", "table.json", "table.png"]
    kept = json.loads((tmp_path / "files" / "table.json").read_text())
    rows = list(csv.DictReader(io.StringIO(as_csv(table))))
    for row, ours in zip(rows, kept["rows"], strict=True):
        assert row["cell"] == ours["cell"]
        assert float(row["masked"]) == ours["figures"]["masked"]["value"]
        assert float(row["masked error"]) == ours["figures"]["masked"]["error"]
    assert rows[0]["masked paper"] == "54.0"
    assert kept["rule"] == rule(2)
    assert kept["findings"][0]["verdict"] == "seen"


def test_the_picture_has_a_panel_a_column(filled):
    table = tabulate(filled, results(filled))
    wide, _ = struct.unpack(">II", picture(table)[16:24])
    assert picture(table)[:4] == b"\x89PNG"
    assert wide > 4 * 300  # parameters, masked, the task and the mean of the tasks


def test_what_is_the_same_in_all_cells_has_no_panel(recipe, job):
    recipe.write_text(recipe.read_text().replace('"parameters", "masked"', '"steps", "masked"'))
    made = job()
    for name, masked in (("shared", 0.4), ("own", 0.5)):
        store(made, name, 0, steps=(1200, 0.0), masked=(masked, 0.01))
    table = tabulate(made, results(made))
    assert [column.key for column in table.columns if tells(table, column)] == ["masked"]
    alone = replace(table, rows=table.rows[:1])
    assert [column.key for column in alone.columns if tells(alone, column)] == ["steps", "masked"]


def test_speeds_and_changes_are_relative_to_their_cell(recipe, job):
    said = recipe.read_text().replace('"parameters", "masked"', '"speed", "change", "masked"')
    recipe.write_text(said.replace("[smoke]", 'reference = "shared"\n[smoke]', 1))
    made = job()
    store(made, "shared", 0, speed=(1000.0, 20.0), masked=(0.4, 0.01), task_authors=(0.70, 0.02))
    store(made, "own", 0, speed=(500.0, 10.0), masked=(0.4, 0.01), task_authors=(0.65, 0.02))
    rows = {row.cell: row.figures for row in tabulate(made, results(made)).rows}
    assert (rows["shared"]["speed"].value, rows["shared"]["speed"].error) == (1.0, 0.0)
    assert rows["own"]["speed"].value == 0.5
    assert rows["own"]["speed"].error == pytest.approx(0.5 * math.hypot(0.02, 0.02))
    assert rows["own"]["change"].value == pytest.approx(-5.0)
    assert "| -5.00 ± 2.83 |" in markdown(tabulate(made, results(made)))


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (({"steps": 3000}, {"steps": 3000}), "Every cell was trained for 3,000 steps."),
        (({"minutes": 0.5}, {"minutes": 0.5}), "Every cell was trained for 0.5 min: equal time, not equal steps."),
        (({"steps": 3000}, {"steps": 2000}), ""),
        (({"steps": 9}, {"steps": 9}, {"of": "another", "steps": 2}), "Every cell was trained for 9 steps."),
        (({"steps": 9}, {"of": "another"}), ""),  # there is but one
        (({"minutes": 1}, {"start": "another", "minutes": 1}), ""),  # the second has had two minutes
        (({"steps": 9}, {"as_long_as": "another", "steps": 9}), ""),  # its own figure is not what it was given
    ],
)
def test_the_budget_is_said_where_all_cells_have_the_same(runs, expected):
    plan = [
        SimpleNamespace(
            cell=SimpleNamespace(**{key: each.get(key, "") for key in ("of", "start", "as_long_as")}),
            recipe=SimpleNamespace(
                run=SimpleNamespace(steps=each.get("steps", 0), budget_minutes=each.get("minutes", 0.0))
            ),
        )
        for each in runs
    ]
    assert budget(SimpleNamespace(plan=plan)) == expected
