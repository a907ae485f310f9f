"""What a model was taught, beside its weights: `task.json`."""

import json
from dataclasses import asdict, dataclass, field
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
    replace_file(folder / FILE, (json.dumps(asdict(taught), indent=1, ensure_ascii=False) + "\n").encode())


def read_taught(folder: Path, heads: tuple[HeadConfig, ...], positions: int) -> Taught | None:
    """From its file; or, for a model from elsewhere, what its head gives away."""
    if (folder / FILE).is_file():
        try:
            return parse(Taught, read_json(folder / FILE))
        except UserError as problem:
            raise UserError(f"{folder / FILE}: {problem}") from None
    reading = Reading(length=min(512, positions))
    for head in heads:
        if head.kind in ("classify", "tag"):
            kind = "several" if head.several else head.kind
            return Taught(Task(kind=kind, labels=head.labels), reading)
        if head.kind == "regress":
            return Taught(Task(kind="regress"), reading)
        if head.kind == "choice":
            return Taught(Task(kind="choice"), reading)
        if head.kind in ("span", "span-beam"):
            asked = Reading(length=min(384, positions), stride=128)
            return Taught(Task(kind="answer", unanswerable=head.kind == "span-beam"), asked)
    return None
