"""The nine GLUE tasks as data, read from GLUE's own files or from JSONL with the names that the hub uses."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from litebert.config import UserError
from litebert.strict import neighbour
from litebert.tasks.example import Example, Kind
from litebert.tasks.table import column, read_rows, text_of

NLI = ("entailment", "neutral", "contradiction")
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    """One benchmark: where its files are and what their columns mean. The first name of a column is GLUE's."""

    name: str
    texts: tuple[tuple[str, ...], ...]
    label: tuple[str, ...] = ("label",)
    labels: tuple[str, ...] = ("0", "1")  # as the files write them, in the order of the logits
    kind: Kind = "classify"
    metrics: tuple[str, ...] = ("accuracy",)  # the first decides which checkpoint is best
    header: tuple[str, ...] | None = None  # of labelled files that have none
    holes: bool = False  # a few rows of GLUE's own file lack a text: left out, as everyone does
    dev: tuple[str, ...] = ("dev", "val", "validation")
    test: tuple[str, ...] = ("test",)


PAIR = (("sentence1", "premise"), ("sentence2", "hypothesis"))
GLUE: dict[str, GlueTask] = {
    "cola": GlueTask(
        name="CoLA", texts=(("sentence",),), metrics=("matthews",), header=("source", "label", "star", "sentence")
    ),
    "sst2": GlueTask(name="SST-2", texts=(("sentence",),)),
    "mrpc": GlueTask(
        name="MRPC",
        texts=(("#1 String", "sentence1"), ("#2 String", "sentence2")),
        label=("Quality", "label"),
        metrics=("f1", "accuracy"),
    ),
    "stsb": GlueTask(
        name="STS-B", texts=PAIR, label=("score", "label"), labels=(), kind="regress", metrics=("pearson", "spearman")
    ),
    "qqp": GlueTask(
        name="QQP",
        texts=(("question1",), ("question2",)),
        label=("is_duplicate", "label"),
        metrics=("f1", "accuracy"),
        holes=True,
    ),
    "mnli": GlueTask(
        name="MNLI",
        texts=PAIR,
        label=("gold_label", "label"),
        labels=NLI,
        dev=("dev_matched", "dev", "val", "validation_matched"),
        test=("test_matched", "test"),
    ),
    "mnli-mm": GlueTask(
        name="MNLI",
        texts=PAIR,
        label=("gold_label", "label"),
        labels=NLI,
        dev=("dev_mismatched", "validation_mismatched"),
        test=("test_mismatched",),
    ),
    "qnli": GlueTask(name="QNLI", texts=(("question",), ("sentence",)), labels=("entailment", "not_entailment")),
    "rte": GlueTask(name="RTE", texts=PAIR, labels=("entailment", "not_entailment")),
    "wnli": GlueTask(name="WNLI", texts=PAIR),
}


def find_files(name: str, folder: Path, split: str) -> list[Path]:
    """The file of a split, in the folder of the task or in one that holds all tasks; or its parts, as the hub has
    them."""
    task = GLUE[name]
    stems = {"train": ("train",), "dev": task.dev, "test": task.test}[split]
    for place in (folder, folder / task.name, folder / name, folder / task.name.lower()):
        for stem in stems:
            if parts := sorted(place.glob(f"{stem}-*-of-*.parquet")):
                return parts
            for ending in (".tsv", ".jsonl", ".csv", ".parquet"):
                for compression in ("", ".xz", ".gz", ".zst", ".bz2"):
                    path = place / f"{stem}{ending}{compression}"
                    if path.is_file():
                        return [path]
    wanted = " or ".join(f"{stem}.tsv" for stem in stems)
    raise UserError(f"no {wanted} of {task.name} in {folder}; give the folder that holds GLUE's own files by --data")


def read_glue(name: str, folder: str | Path, split: str) -> Iterator[Example]:
    """The examples of a split, in the file's order."""
    if name not in GLUE:
        raise UserError(f"unknown task {name!r}{neighbour(name, GLUE)}")
    for path in find_files(name, Path(folder), split):
        yield from read_file(name, path, split)


def read_file(name: str, path: Path, split: str) -> Iterator[Example]:
    """The examples of one of its files."""
    task = GLUE[name]
    header = task.header if split != "test" and ".tsv" in path.name else None
    for number, row in read_rows(path, header, skip=task.holes):
        where = f"{path}, row {number}"
        if task.holes and not all(str(row.get(names[0]) or row.get(names[-1]) or "").strip() for names in task.texts):
            continue
        texts = tuple(text_of(row, names, where) for names in task.texts)
        known = any(label in row for label in task.label)
        if not known and split != "test":
            column(row, task.label, where)  # says which columns there are
        key = str(row.get("index", row.get("idx", row.get("id", number))))
        target = _target(task, column(row, task.label, where), where) if known else None
        yield Example(key=key, texts=texts, target=target, where=where)


def _target(task: GlueTask, value: object, where: str) -> str | float | None:
    if task.kind == "regress":
        try:
            return float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise UserError(f"{where}: {value!r} is not a number") from None
    if isinstance(value, int) and not isinstance(value, bool):
        if value == -1:  # the hub's mark for a test set without labels
            return None
        if not 0 <= value < len(task.labels):
            raise UserError(f"{where}: label {value} is none of 0 to {len(task.labels) - 1}")
        return task.labels[value]
    if value not in task.labels:
        raise UserError(f"{where}: unknown label {value!r}{neighbour(str(value), task.labels)}")
    return str(value)
