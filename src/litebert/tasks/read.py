"""`TASKS`: every benchmark as data; and the examples of a split, whichever kind of file they lie in."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from litebert.config import UserError
from litebert.files import meant
from litebert.strict import neighbour
from litebert.tasks.example import Example, Task
from litebert.tasks.glue import GLUE, SPLITS, read_file, read_glue
from litebert.tasks.hub import fetch
from litebert.tasks.own import guess_columns, read_own
from litebert.tasks.race import read_race
from litebert.tasks.squad import read_squad
from litebert.tasks.table import read_rows

TASKS: dict[str, Task] = {
    **{name: Task(name=name, kind=t.kind, labels=t.labels, metrics=t.metrics) for name, t in GLUE.items()},
    "squad": Task(name="squad", kind="answer"),
    "squad2": Task(name="squad2", kind="answer", unanswerable=True),
    "race": Task(name="race", kind="choice"),
    "race-middle": Task(name="race-middle", kind="choice"),
    "race-high": Task(name="race-high", kind="choice"),
}
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
SQUAD_FILES = {"squad": "v1.1", "squad2": "v2.0"}


def benchmark(name: str) -> Task:
    if name not in TASKS:
        raise UserError(f"unknown task {name!r}{neighbour(name, TASKS)}")
    return TASKS[name]


def read_split(task: Task, folder: str | Path, split: str) -> Iterator[Example]:
    """The examples of a benchmark's split (train, dev, test). A folder that is not there may be the name of a data set
    on the hub: `nyu-mll/glue`, `rajpurkar/squad`, `ehovy/race`."""
    path = Path(folder)
    if not path.exists():
        if not HUB_NAME.fullmatch(str(folder)):
            remedy = f"; give the one that holds the files of {task.name} by --data"
            raise UserError(f"no folder {folder}{meant(folder) or remedy}")
        path = fetch(str(folder), ["*.parquet"], "dataset")
    if task.name in SQUAD_FILES:
        parts = hub_parts(path, split)
        if parts:
            asked = replace(task, texts=("question", "context"), label=("answers",))
            for part in parts:
                yield from read_own(part, asked)
        else:
            yield from read_squad(path if path.is_file() else _squad_file(path, split, SQUAD_FILES[task.name]))
    elif task.name.startswith("race"):
        yield from read_race(path, split, task.name.partition("-")[2] or "both")
    else:
        yield from read_glue(task.name, path, split)


def read_unlabelled(task: Task, path: str | Path, split: str = "test") -> Iterator[Example]:
    """What is to be answered: a split of a benchmark's folder, a file in its layout or of the task's columns."""
    place = Path(path)
    if split not in SPLITS:
        raise UserError(f"--split {split!r}; allowed: {', '.join(SPLITS)}")
    if not task.name or (place.is_file() and not _in_layout(task, place)):
        if task.name in GLUE and not task.texts:
            row = next(read_rows(place), (0, {}))[1]
            usual = [next((name for name in names if name in row), names[0]) for names in GLUE[task.name].texts]
            task = replace(task, texts=tuple(usual))
        yield from read_own(place, task if task.texts else guess_columns(place, task), labelled=False)
    elif place.is_file() and task.name in GLUE:
        for each in read_file(task.name, place, "dev"):
            yield replace(each, target=None)
    else:
        yield from read_split(task, place, split)


def _in_layout(task: Task, file: Path) -> bool:
    """Whether a file is laid out as the benchmark's own: JSON of SQuAD, passages of RACE, columns without names."""
    if task.texts:
        return False
    if task.name in SQUAD_FILES:
        return ".json" in file.suffixes and ".jsonl" not in file.suffixes
    if task.name.startswith("race"):
        return "questions" in next(read_rows(file), (0, {}))[1]
    return GLUE[task.name].header is not None and ".tsv" in file.suffixes and _bare(task.name, file)


def _bare(name: str, file: Path) -> bool:
    """Whether the columns have no names: then the first row is an example."""
    first = next(read_rows(file), (0, {}))[1]
    return not any(text in first for names in GLUE[name].texts for text in names)


def hub_parts(folder: Path, split: str) -> list[Path]:
    """The Parquet files of a split as the hub lays them out, in the folder or in one inside it."""
    stem = {"dev": "validation"}.get(split, split)
    return sorted(folder.glob(f"{stem}-*-of-*.parquet")) or sorted(folder.glob(f"*/{stem}-*-of-*.parquet"))


def _squad_file(folder: Path, split: str, version: str) -> Path:
    found = sorted(folder.glob(f"{split}-{version}.json*"))
    if not found:
        raise UserError(f"no {split}-{version}.json in {folder}; give the folder of SQuAD's own files by --data")
    return found[0]


def hold_out(examples: Sequence[Example], task: Task, share: float, seed: int) -> tuple[list[Example], list[Example]]:
    """A part kept for scoring: drawn by the seed, of every class its share."""
    strata: dict[object, list[int]] = {}
    for number, example in enumerate(examples):
        strata.setdefault(example.target if task.kind == "classify" else None, []).append(number)
    rng = np.random.default_rng(seed)
    kept: set[int] = set()
    owed = 0.0
    for label in sorted(strata, key=str):
        rows = strata[label]
        owed += share * len(rows)
        count = min(len(rows) - 1, round(owed))
        owed -= count
        kept.update(rng.permutation(rows)[:count].tolist())
    if not kept or len(kept) == len(examples):
        raise UserError(f"{len(examples)} examples are too few to hold some out; give a dev file by --dev")
    return [each for n, each in enumerate(examples) if n not in kept], [examples[n] for n in sorted(kept)]


def missing_classes(task: Task, examples: Iterable[Example]) -> list[str]:
    """Labels that no example has: what is scored says nothing about them."""
    seen: set[str] = set()
    for example in examples:
        if isinstance(example.target, str):
            seen.add(example.target)
        elif task.kind in ("several", "tag") and isinstance(example.target, tuple):
            seen.update(str(label) for label in example.target)
    return [label for label in task.labels if label not in seen]
