"""Cells that two tables have in common are trained once: the second table takes them from the first one's folder."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from litebert.ablate.once import RESULT, SETTINGS, Say, unlike, write_json
from litebert.config import UserError
from litebert.files import read_json
from litebert.recipe import read_recipe
from litebert.train.run import MODEL, RECIPE

TAKEN = "taken.txt"


def check_reused(folders: Sequence[Path]) -> None:
    """A folder without a table is a mistyped name, and would cost all that it was to save."""
    for folder in folders:
        if not any(folder.glob(f"*/seed-*/{SETTINGS}")):
            raise UserError(f"--reuse {folder}: no table was begun there")


def reuse(folder: Path, wanted: dict[str, Any], shards: str, others: Sequence[Path], say: Say) -> str:
    """Bring the run of a finished cell that is trained alike, and the tasks that it was taught alike, into a cell's
    folder that has none yet. Whose they are, or ""."""
    if (folder / "pretrain").exists():
        return (folder / TAKEN).read_text(encoding="utf-8") if (folder / TAKEN).exists() else ""
    if wanted["needs"]:
        return ""
    for other in others:
        for file in sorted(other.glob(f"*/seed-*/{SETTINGS}")):
            theirs = read_json(file)
            if not theirs["needs"] and not unlike(wanted["recipe"], theirs["recipe"]) and usable(file.parent, shards):
                said = f"{other.name}, cell {file.parent.parent.name}"
                bring(file.parent, folder, wanted, theirs, said)
                say({"kind": "note", "text": f"trained already, in {said}"})
                return said
    return ""


def usable(folder: Path, shards: str) -> bool:
    """It ended well, and the same folder of text is still where it was."""
    run = folder / "pretrain"
    if not (folder / RESULT).exists() or not (run / MODEL).exists():
        return False
    return not read_json(folder / RESULT)["failed"] and read_recipe(str(run / RECIPE))["data"]["shards"] == shards


def bring(source: Path, to: Path, wanted: dict[str, Any], theirs: dict[str, Any], said: str) -> None:
    """Tasks first and the run last, in one moment: what is there of a run is all of it."""
    for name, lesson in wanted["tasks"].items():
        done = source / "tasks" / f"{name}.json"
        if done.exists() and not unlike(lesson, theirs["tasks"].get(name, {})):
            made = read_json(done)
            made["recipe"]["model"] = str(to / "pretrain" / MODEL)
            write_json(to / "tasks" / done.name, made)
    (to / TAKEN).write_text(said, encoding="utf-8")
    coming = to / "pretrain.coming"
    shutil.rmtree(coming, ignore_errors=True)
    shutil.copytree(source / "pretrain", coming)
    coming.rename(to / "pretrain")
