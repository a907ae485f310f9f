"""A task by its name, and the folder of benchmarks -> its files, how it is learned, and what its column is called."""

from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from litebert.config import UserError
from litebert.recipe import TaskConfig, TuneRecipe, read_recipe, recipe_names
from litebert.strict import neighbour, parse

AUTHORS = "authors"  # who wrote this sentence: the only task that ships with the package
NEVER = 1 << 40  # steps between two looks: only the end is scored


@dataclass(frozen=True)
class Trial:
    """A task as every model of a comparison meets it."""

    title: str  # of its column: a stand-in is named
    printed: str  # the paper's column beside it
    metric: str
    task: TaskConfig
    epochs: float = 3.0
    seeds: int = 1  # of the fine-tuning, where one model is looked at closely; several where the set is small


TITLES = {  # task: the papers' column, and our metric that is compared with it
    "cola": ("CoLA", "matthews"),
    "sst2": ("SST-2", "accuracy"),
    "mrpc": ("MRPC", "accuracy"),
    "stsb": ("STS-B", "pearson"),
    "qqp": ("QQP", "accuracy"),
    "qnli": ("QNLI", "accuracy"),
    "rte": ("RTE", "accuracy"),
    "wnli": ("WNLI", "accuracy"),
    "mnli": ("MNLI", "accuracy"),
    "squad": ("SQuAD1.1", "f1"),
    "squad2": ("SQuAD2.0", "f1"),
    "race": ("RACE", "accuracy"),
}
SMALL_SETS = ("cola", "mrpc", "stsb", "rte", "wnli")
FOLDERS = {"squad": "squad", "squad2": "squad", "race": "race"}  # the others are in glue/


def trial(name: str, data: Path) -> Trial:
    """MNLI's and SQuAD 2.0's training sets may not be at hand: LingNLI, written on MNLI's premises, and SQuAD 1.1 stand
    for them, and the column says so."""
    if name == AUTHORS:
        shipped = resources.files("litebert") / "data"
        train, dev = (str(shipped / f"authors-{part}.csv.xz") for part in ("train", "dev"))
        return Trial(AUTHORS, "", "accuracy", TaskConfig(train=train, dev=dev, texts=("text",), label=("author",)))
    if name not in TITLES:
        raise UserError(f"no task {name!r}{neighbour(name, [AUTHORS, *TITLES], 'the tasks')}")
    title, metric = TITLES[name]
    folder = data / FOLDERS.get(name, "glue")
    epochs = 5.0 if name in SMALL_SETS else 2.0 if name in FOLDERS else 3.0
    whole = Trial(title, title, metric, TaskConfig(name=name, data=str(folder)), epochs, 5 if epochs == 5 else 1)
    ling = folder / "LingNLI" / "train.jsonl.xz"
    if name == "mnli" and ling.is_file() and not list((folder / "MNLI").glob("train.*")):
        dev = str(folder / "MNLI" / "val.jsonl")
        task = TaskConfig(train=str(ling), dev=dev, texts=("premise", "hypothesis"), label=("label",))
        return replace(whole, title="MNLI (taught LingNLI)", task=task)
    if name == "squad2" and not list(folder.glob("train-v2.0.json*")) and list(folder.glob("train-v1.1.json*")):
        return replace(whole, title="SQuAD1.1 (for 2.0)", task=TaskConfig(name="squad", data=str(folder)))
    return whole


def lesson(name: str, chosen: Trial, recipe: str, family: str) -> TuneRecipe:
    """How a cell is taught it: the scale's recipe or, where that names none, the family's own for the task. The score
    is that of the last step, never the best of several looks; the model is filled in where it lies."""
    own = [f"{prefix}-{name}" for prefix in (family, "albert") if f"finetune/{prefix}-{name}" in recipe_names()]
    if not recipe and not own:
        raise UserError(f"no recipe teaches {name!r}; say one in the scale: tune = 'quick'")
    table: dict[str, Any] = read_recipe(recipe or own[0])
    table.pop("task", None)
    made = parse(TuneRecipe, table | {"model": "to be said"})
    return replace(made, task=chosen.task, tune=replace(made.tune, evaluate_every=NEVER))
