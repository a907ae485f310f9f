"""What a model was taught, beside its weights: `task.json`."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from litebert.config import HeadConfig, Reading, UserError
from litebert.files import read_json, replace_file
from litebert.strict import parse
from litebert.tasks.example import Task

FILE = "task.json"


@dataclass(frozen=True)
class Taught:
    """A task and how its texts were read."""

    task: Task
    reading: Reading = field(default_factory=Reading)


def write_taught(folder: Path, taught: Taught) -> None:
    table = asdict(taught) | {"task": taught.task.as_table()}
    replace_file(folder / FILE, (json.dumps(table, indent=1, ensure_ascii=False) + "\n").encode())


def read_taught(folder: Path, heads: tuple[HeadConfig, ...], positions: int) -> Taught | None:
    """From its file; or, for a model from elsewhere, what its head gives away."""
    if (folder / FILE).is_file():
        try:
            return parse(Taught, read_json(folder / FILE))
        except UserError as problem:
            raise UserError(f"{folder / FILE}: {problem}") from None
    for head in heads:
        if head.kind in ("classify", "tag"):
            kind = "several" if head.several else head.kind
            return suited(Task(kind=kind, labels=head.labels), Reading(length=min(512, positions)), positions)
        if head.kind in ("regress", "choice"):
            return suited(Task(kind=head.kind), Reading(length=min(512, positions)), positions)
        if head.kind in ("span", "span-beam"):
            return suited(Task(kind="answer", unanswerable=head.kind == "span-beam"), Reading(), positions)
    return None


def suited(task: Task, reading: Reading, positions: int) -> Taught:
    """What was left open about reading, as the papers have it: sentences 128 pieces, passages of questions 384, those
    of choices 512."""
    if reading.length > positions:
        raise UserError(f"reading.length = {reading.length} does not fit the model's {positions} positions")
    length = reading.length or min(positions, {"answer": 384, "choice": 512}.get(task.kind, 128))
    question = reading.question_length or min(length // 2, 128 if task.kind == "choice" else 64)
    return Taught(task, replace(reading, length=length, question_length=question))
