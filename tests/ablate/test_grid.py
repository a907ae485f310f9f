"""Recipes of tables: every cell at every scale is a whole run, and a mistake is one line."""

import json
import re
import tomllib
from dataclasses import replace
from importlib import resources

import pytest
import torch
from typer.testing import CliRunner

from litebert.ablate.grid import SCALES, grid_names, merged, model_of, plan_cells, read_grid
from litebert.cli import app
from litebert.config import UserError
from litebert.model.heads import Network
from litebert.report.info import paper_table
from litebert.strict import to_toml
from litebert.train.objective import pretraining_heads
from tests.ablate.conftest import TWO

WANTED = {
    "sizes", "wider", "embedding", "sharing", "objective", "depth", "width", "equal-time", "wide-depth", "more-data",
    "longer", "dropout", "masking", "static", "layouts", "batch", "direction", "features", "distillation", "family",
    "optimizer",
}  # fmt: skip


def papers():
    return tomllib.loads((resources.files("litebert") / "report" / "papers.toml").read_text())


def rows(paper, table):
    found = papers()[paper][table]
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def test_there_is_a_recipe_for_every_table():
    assert set(grid_names()) == WANTED


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What `litebert info` says of a recipe's model; asked once of each, for many cells share one."""
    file, known = tmp_path_factory.mktemp("info") / "cell.toml", {}

    def ask(recipe):
        if recipe.model not in known:
            file.write_text(to_toml(recipe))
            facts = json.loads(CliRunner().invoke(app, ["info", str(file), "--json"]).stdout)
            known[recipe.model] = facts["parameters"]["backbone_and_pooler"]
        return known[recipe.model]

    return ask


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", sorted(WANTED))
def test_every_cell_builds_with_the_parameters_that_info_tells(name, scale, told):
    for planned in plan_cells(read_grid(name), scale):
        recipe, model = planned.recipe, model_of(planned.recipe)
        with torch.device("meta"):
            network = Network(model, pretraining_heads(model, recipe.data))
        assert len(network.encoder.trunk.plan) == model.depth
        built = sum(each.numel() for each in network.encoder.parameters())
        assert built == told(replace(recipe, model=model)), planned.name
        assert recipe.run.steps or recipe.run.budget_minutes, "a cell says how long it is"
        assert scale != "small" or recipe.run.budget_minutes <= 1


@pytest.mark.parametrize("name", ["embedding", "sharing"])
def test_the_papers_sizes_are_those_of_its_cells(name):
    """By its own rule: the pooler counts where weights are shared."""
    printed = {(row.sharing, row.embedding_size): (row.printed, row.ours) for row in paper_table(name)}
    for planned in plan_cells(read_grid(name), "paper"):
        model = planned.recipe.model
        if planned.cell.printed:
            said, ours = printed[model.sharing, model.embedding_size]
            assert planned.cell.printed["parameters"] == said
            with torch.device("meta"):
                built = Network(model if model.sharing != "none" else replace(model, pooler=False))
            assert sum(each.numel() for each in built.parameters()) == ours


@pytest.mark.parametrize(
    ("name", "paper", "table", "label"),
    [
        ("sizes", "albert", "sizes", lambda row: row["model"]),
        ("embedding", "albert", "embedding", lambda row: f"{row['sharing']}-{row['E']}"),
        ("sharing", "albert", "sharing", lambda row: f"{row['sharing']}-{row['E']}"),
        ("objective", "albert", "sentence_objective", lambda row: row["objective"].replace("none", "mlm")),
        ("equal-time", "albert", "equal_time", lambda row: row["model"]),
        ("depth", "albert", "depth", lambda row: f"layers-{row['layers']}"),
        ("width", "albert", "width", lambda row: f"hidden-{row['hidden']}"),
        ("wide-depth", "albert", "wide_depth", lambda row: f"layers-{row['layers']}"),
        ("dropout", "albert", "dropout", lambda row: row["dropout"]),
        ("more-data", "albert", "more_data", lambda row: "without" if row["data"].startswith("no") else "with"),
        ("layouts", "roberta", "layouts", lambda row: row["layout"]),
        ("batch", "roberta", "batch", lambda row: f"batch-{row['batch']}"),
    ],
)
def test_what_the_paper_printed_stands_in_its_row(name, paper, table, label):
    cells = {cell.name: cell for cell in read_grid(name).cells}
    for row in rows(paper, table):
        printed = cells[label(row)].printed
        assert printed, label(row)
        assert printed == {key: row[key] for key in printed}
        assert {"MNLI", "SST-2"} <= set(printed)


def test_the_papers_budgets_are_theirs():
    sharing = plan_cells(read_grid("sharing"), "paper")[0].recipe
    assert (sharing.run.steps, sharing.phases[0].batch, sharing.phases[0].length) == (125_000, 4096, 512)
    batches = [planned.recipe for planned in plan_cells(read_grid("batch"), "paper")]
    told = [(recipe.phases[0].batch, recipe.run.steps, recipe.phases[0].rate) for recipe in batches]
    assert told == [(256, 1_000_000, 1e-4), (2048, 125_000, 7e-4), (8192, 31_000, 1e-3)]
    times = {planned.name: planned.recipe.run.steps for planned in plan_cells(read_grid("equal-time"), "paper")}
    assert times == {"bert-large": 400_000, "albert-xxlarge": 125_000}


@pytest.mark.parametrize("name", ["sharing", "embedding", "objective", "masking"])
def test_at_small_every_cell_grows_alike_and_the_note_says_so(name):
    grid = read_grid(name)
    phases = {tuple((phase.passes, phase.rate, phase.share) for phase in each.recipe.phases)
              for each in plan_cells(grid, "small")}  # fmt: skip
    assert len(phases) == 1
    assert [passes for passes, _, _ in phases.pop()] == [3, 6, 0]
    assert "grown alike, 3 passes, then 6, then all 12" in grid.small.note


def test_some_cells_bring_those_they_need_and_may_be_changed_alone():
    grid = read_grid("depth")
    assert [each.name for each in plan_cells(grid, "smoke", only=["layers-6"])] == ["layers-1", "layers-3", "layers-6"]
    changed = plan_cells(grid, "small", ["layers-3:run.seed=7", "run.seed=9"])
    assert {each.recipe.run.seed for each in changed if each.name != "layers-3"} == {9}
    assert next(each.recipe.run.seed for each in changed if each.name == "layers-3") == 7, "its own comes last"
    with pytest.raises(UserError, match="no cell 'layers-7'; did you mean 'layers-"):
        plan_cells(grid, "smoke", only=["layers-7"])


@pytest.mark.parametrize(
    ("name", "change", "only", "sentence"),
    [
        ("depth", "layers-7:run.seed=7", [], "--set: no cell 'layers-7'; did you mean 'layers-"),
        ("depth", "layers-3:run.seed=7", ["layers-1"], "--set layers-3:run.seed=7: that cell is not among those asked"),
        ("depth", ":run.seed=7", [], "--set :run.seed=7: name the cell before the colon, or leave the colon out"),
        ("distillation", "alone:run.steps=7", [], "--set alone:run.steps=7: that cell is as long as 'all-losses';"),
        ("features", "last:run.seed=7", [], "--set last:run.seed=7: that cell is the model of"),
    ],
)
def test_a_setting_that_no_cell_would_hear_is_refused(name, change, only, sentence):
    with pytest.raises(UserError, match=re.escape(sentence)):
        plan_cells(read_grid(name), "small", [change], only)


def test_the_users_settings_hold_for_all_cells_and_come_last():
    for planned in plan_cells(read_grid("sharing"), "smoke", ["run.steps=9", "model.embedding_size=20"]):
        assert (planned.recipe.run.steps, planned.recipe.model.embedding_size) == (9, 20)
    assert merged({"a": {"b": 1}, "phases": [1, 2]}, {"a": {"c": 2}, "phases": [3]}) == {
        "a": {"b": 1, "c": 2},
        "phases": [3],
    }


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("model.sharing", "model.sharng", "cell 'own' at smoke: unknown key 'sharng' in [model]; did you mean"),
        ('"none"', '"nne"', "cell 'own' at smoke: model.sharing = 'nne'; did you mean 'none'?"),
        ("claim =", "clam =", "unknown key 'clam' in [findings[0]]; did you mean 'claim'?"),
        ('cell = "own"', 'cell = "owl"', "the recipe: finding 'own layers are better': no cell 'owl'; did you"),
        ('"masked", "average"', '"order", "change"', "the recipe: finding 'own layers are better': no column 'change'"),
        ('name = "own"', 'name = "shared"', "the recipe: two cells are called 'shared'"),
        ('name = "own"', 'name = "own"\nstart = "later"', "the recipe: cell 'own' needs 'later', which must stand"),
        ('name = "own"', 'name = "../own"', "[cells[1]]: a cell's name is small letters"),
        ('name = "own"', 'name = "own"\nof = "shared"', "[cells[1]]: cell 'own' is the model of 'shared', so it"),
        ("[[findings]]", '[[cells]]\nname = "a"\nof = "shared"\nas_long_as = "shared"\n[[findings]]',
         "[cells[2]]: cell 'a' is the model of 'shared', so it has no settings"),
        ("[[findings]]", '[[cells]]\nname = "a"\nof = "shared"\n[[cells]]\nname = "b"\nas_long_as = "a"\n[[findings]]',
         "the recipe: cell 'b' is as long as 'a', which trains nothing itself"),
        ('name = "own"', 'name = "own"\nby = "time"', "[cells[1]]: cell 'own': by says what is as long as another"),
        ('way = "above"', 'way = "near"', "[findings[0]]: finding 'own layers are better': a margin goes with way ="),
        ('than = ["shared"]', "", "[findings[0]]: finding 'own layers are better' compares with cells (than) or with"),
        ('base = "smoke"', 'base = "smke"', "cell 'shared' at smoke: no recipe 'smke'; did you mean 'smoke'?"),
        ('"masked", "order"', '"speed", "order"', "the recipe: finding 'own layers are better': no column 'masked'"),
        ("[cells.set]\nmodel.sharing = \"none\"", "set = 3", "cells[1].set is a section, [cells[1].set], not 3"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_recipe_is_one_line(old, new, sentence, tmp_path):
    file = tmp_path / "two.toml"
    file.write_text(TWO.replace(old, new, 1) if old != '"masked", "average"' else TWO.replace(old, new))
    with pytest.raises(UserError, match="^" + re.escape(sentence)) as problem:
        plan_cells(read_grid(str(file)), "smoke")
    assert "\n" not in str(problem.value)


def test_a_table_that_is_not_there_names_its_neighbour():
    with pytest.raises(UserError, match=re.escape("no table 'sharng'; did you mean 'sharing'?")):
        read_grid("sharng")
