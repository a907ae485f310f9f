"""`litebert ablate` on the command line: the list, the table, and one line for each mistake."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from litebert.ablate.grid import grid_names, read_grid
from litebert.ablate.tasks import lesson, trial
from litebert.cli import app
from litebert.config import UserError
from litebert.files import alone
from tests.ablate.test_grid import WANTED

DOCS = Path(__file__).parents[2] / "docs" / "ablations.md"


def run(*words):
    return CliRunner().invoke(app, ["ablate", *map(str, words)], catch_exceptions=False)


def test_the_list_tells_cells_and_costs_of_every_table():
    found = {each["name"]: each for each in json.loads(run("--list", "--json").stdout)}
    assert set(found) == WANTED
    sharing = found["sharing"]
    assert sharing["cells"] == len(read_grid("sharing").cells) == 10
    assert sharing["small"]["minutes"] == 10
    assert sharing["paper"]["steps"] == 10 * 125_000
    assert sharing["smoke"]["steps"] == 60
    assert found["features"]["small"]["minutes"] == 1, "rows of one model cost it once"
    assert found["wide-depth"]["paper"]["flops"] > found["sharing"]["paper"]["flops"] / 10
    printed = run("--list").stdout
    assert all(name in printed for name in WANTED)
    assert "10 minutes" in printed


def test_flops_are_counted_by_hand(recipe):
    from litebert.ablate.job import cost

    text = recipe.read_text().replace('base = "smoke"', 'base = "cpu-demo"', 1)
    recipe.write_text(text)
    grid = read_grid(str(recipe))
    layer = 2 * (4 * 128**2 + 2 * 128 * 512)
    pieces = 16 * 64
    head = 2 * (128 * 64 + 64 * 8000)
    steps = {1: 1200, 2: 500, 4: 300}  # by passes
    fixed = pieces * 2 * 64 * 128 + round(0.15 * pieces) * head
    one = sum(3 * count * (fixed + depth * (pieces * layer + 4 * 128 * pieces * 64)) for depth, count in steps.items())
    unread = pieces - round(0.15 * pieces) - 16  # in the last layer
    one -= 3 * 2000 * unread * 2 * (128**2 + 2 * 128 * 512)
    assert cost(grid, "smoke")["flops"] == 2 * one


def test_flops_of_lengths_in_turn_are_their_mean():
    from litebert.ablate.job import flops
    from litebert.recipe import apply_sets, read_recipe

    def count(*phases):
        shape = {"share": 1.0, "passes": 4, "batch": 8, "length": 128}
        table = read_recipe("cpu-demo") | {"phases": [shape | each for each in phases]}
        return flops(apply_sets(table, ["run.steps=10"]))

    apart = count({}, {"length": 32, "batch": 32})
    assert count({"turns": [32]}) == pytest.approx(apart, rel=1e-9)
    assert count({"turns": [32]}) != pytest.approx(count({}), rel=1e-3)


def test_a_table_is_printed_and_written(recipe, text, tmp_path):
    words = [recipe, "--to", tmp_path / "out", "--shards", text / "shards", "--device", "cpu", "--cells", "own"]
    first = run(*words)
    assert first.exit_code == 0
    assert "Two cells, smoke; beside nobody, table 0" in first.stdout
    assert "Findings about cells that were not asked for: 1." in first.stdout
    assert "A finding is seen where" in first.stdout
    again = json.loads(run(*words, "--json").stdout)
    assert [row["cell"] for row in again["rows"]] == ["own"]
    assert json.loads((tmp_path / "out" / "table.json").read_text()) == again


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "say which table, or see them all: litebert ablate --list"),
        (["sharng"], "no table 'sharng'; did you mean 'sharing'?"),
        (["sharing", "--scale", "small"], "--scale small trains on text of yours: --shards FOLDER"),
        (["sharing", "--cells", "al-128"], "no cell 'al-128'; did you mean 'all-128'?"),
        (["sharing", "--set", "model.heds=3"], "cell 'all-768' at smoke: unknown key 'heds' in [model]; did you"),
        (["sharing", "--scale", "small", "--shards", "x"], "the tasks sst2, mnli want files: --data FOLDER"),
        (["more-data", "--shards", "x"], "more-data compares text with more text: --more-shards FOLDER"),
        (["sharing", "--shards", "x", "--task", "sst3", "--data", "x"], "no task 'sst3'; did you mean 'sst2'?"),
        (["sharing", "--shards", "nowhere"], "no shards under "),
    ],
)
def test_a_mistake_is_one_line(words, sentence, tmp_path):
    with pytest.raises(UserError, match="^" + re.escape(sentence)) as problem:
        run(*words, *(["--to", tmp_path / "out", "--device", "cpu"] if words else []))
    assert "\n" not in str(problem.value)


def test_files_that_are_missing_are_missed_before_anything_is_trained(text, tmp_path):
    words = ["sharing", "--shards", text / "shards", "--to", tmp_path / "out", "--data", tmp_path, "--task", "sst2"]
    with pytest.raises(UserError, match=r"SST-2: no .*glue; give the folder that holds glue/, squad/ and race/ by"):
        run(*words, "--device", "cpu")
    assert not (tmp_path / "out").exists()


def test_one_process_makes_a_table(recipe, text, tmp_path):
    with (
        alone(tmp_path / "out"),
        pytest.raises(UserError, match=r"another process is writing .*; wait for it, or choose"),
    ):
        run(recipe, "--to", tmp_path / "out", "--shards", text / "shards", "--device", "cpu")


def test_without_its_package_only_the_picture_is_missing(recipe, text, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    words = [recipe, "--to", tmp_path / "out", "--shards", text / "shards", "--device", "cpu", "--cells", "own"]
    with pytest.raises(UserError, match="pictures are drawn with matplotlib"):
        run(*words)
    assert {path.name for path in (tmp_path / "out").glob("table.*")} == {"table.md", "table.csv", "table.json"}


def test_a_stand_in_is_named_in_its_column(data):
    assert trial("mnli", data).title == "MNLI (taught LingNLI)"
    assert trial("squad2", data).title == "SQuAD1.1 (for 2.0)"
    assert trial("sst2", data).title == "SST-2"


def test_tasks_are_taught_as_the_papers_appendix_says_where_the_scale_names_no_recipe(tmp_path):
    task = trial("sst2", tmp_path)
    assert lesson("sst2", task, "", "albert").tune.steps == 20935
    assert lesson("sst2", task, "", "roberta").optimizer.weight_decay == 0.1
    assert lesson("sst2", task, "", "bert").tune.steps == 20935, "BERT has no recipes of its own here"
    assert lesson("sst2", task, "quick", "roberta").tune.steps == 1000
    assert lesson("squad2", trial("squad2", tmp_path), "", "roberta").tune.steps == 8144


@pytest.mark.parametrize("name", grid_names())
def test_every_paper_scale_names_tasks_that_have_recipes(name, tmp_path):
    for task in read_grid(name).paper.tasks:
        for family in ("albert", "bert", "roberta", "distilbert"):
            lesson(task, trial(task, tmp_path), "", family)


def test_every_command_on_the_page_is_understood():
    """Their options are, and their tables are there; what they train is too much for a test."""
    commands = re.findall(r"^litebert (ablate.*)$", DOCS.read_text(), re.MULTILINE)
    assert len(commands) >= 5
    for line in commands:
        words = shlex.split(line.split("  #")[0])
        assert CliRunner().invoke(app, [*words, "--list", "--json"]).exit_code == 0, line
        named = words[1] if len(words) > 1 and not words[1].startswith("--") else None
        assert named is None or named in grid_names() or named.endswith(".toml"), line


def test_the_table_on_the_page_runs(text, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(re.search(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)[1])
    done = run(file, "--to", tmp_path / "out", "--shards", text / "shards", "--device", "cpu", "--json")
    found = json.loads(done.stdout)
    assert [row["failed"] for row in found["rows"]] == [None, None]
    assert found["findings"][0]["verdict"] in ("seen", "not seen", "within noise")


def test_the_page_lists_every_table():
    text = DOCS.read_text()
    for name in grid_names():
        assert f"| `{name}` |" in text, name
