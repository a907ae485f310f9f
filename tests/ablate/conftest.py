"""Tables small enough for a test: the text that ships with the package, and a grid of two cells that costs a second."""

from pathlib import Path

import pytest

from litebert.ablate.job import new_job
from litebert.ablate.text import shipped_shards

TWO = """
title = "Two cells"
source = "nobody, table 0"
columns = ["parameters", "masked", "order", "next", "tasks", "average"]

[smoke]
base = "smoke"
tasks = ["authors"]
tune = "few-steps"
pairs = 64

[small]
base = "albert-base-1min"

[paper]
base = "albert-base-v1"

[[cells]]
name = "shared"
printed = { MLM = 54.0, RACE = 64.0 }

[[cells]]
name = "own"
[cells.set]
model.sharing = "none"

[[findings]]
claim = "own layers are better"
columns = ["masked", "average"]
cell = "own"
way = "above"
than = ["shared"]
"""


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> Path:
    """Shards of the shipped novels, and of half of them."""
    folder = tmp_path_factory.mktemp("text")
    shipped_shards(folder, less=True)
    return folder


@pytest.fixture
def recipe(tmp_path) -> Path:
    """A table of two cells, as a file of the user's own."""
    file = tmp_path / "two.toml"
    file.write_text(TWO)
    return file


@pytest.fixture
def job(text, recipe, tmp_path):
    """job(seeds=2, sets=[…]): that table, ready to run."""

    def make(**more):
        settings = {"shards": str(text / "shards"), "device": "cpu"} | more
        return new_job(str(recipe), "smoke", tmp_path / "out", **settings)

    return make
