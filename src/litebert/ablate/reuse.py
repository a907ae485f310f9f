"""Cells that two tables have in common are trained once: the second table takes them from the first one's folder."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from litebert.ablate.once import RESULT, SETTINGS, Say, write_json
from litebert.config import UserError
from litebert.files import read_json
from litebert.recipe import Recipe, load_recipe
from litebert.train.run import MODEL, RECIPE, differences

TAKEN = "taken.txt"  # inside the run: whose it was
QUIET = {"workers", "log_every", "save_every", "keep", "most_skips"}  # change neither a result nor its time
Where = Mapping[str, Any]  # device and versions that a cell ran with


def check_reused(folders: Sequence[Path]) -> None:
    """A folder without a table is a mistyped name, and would cost all that it was to save."""
    for folder in folders:
        if not any(folder.glob(f"*/seed-*/{SETTINGS}")):
            raise UserError(f"--reuse {folder}: no table was begun there; give the folder that its --to named")


def taken_from(folder: Path) -> str:
    """Whose run a cell has, where it is not its own."""
    file = folder / "pretrain" / TAKEN
    return file.read_text(encoding="utf-8") if file.exists() else ""


def reuse(
    folder: Path,
    recipe: Recipe,
    lessons: Mapping[str, Mapping[str, Any]],
    where: Where,
    others: Sequence[Path],
    say: Say,
) -> None:
    """Bring the run of a finished cell of the same recipe, with nothing left open in it, on such a machine, into a
    cell's folder that has none; and what it was taught where the lesson is the same."""
    if not others or (folder / "pretrain").exists():
        return
    for other in others:
        for file in sorted(other.glob(f"*/seed-*/{SETTINGS}")):
            source = file.parent
            if alike(source, recipe, where):
                said = f"{other.name}, cell {source.parent.name}"
                try:
                    bring(source, folder, lessons, said)
                except OSError as problem:
                    say({"kind": "note", "text": f"cannot take it from {said}: {problem.strerror or problem}"})
                    return
                say({"kind": "note", "text": f"trained already, in {said}"})
                return
    where_looked = ", ".join(map(str, others))
    say({"kind": "note", "text": f"nothing in {where_looked} was trained alike, on text in the same place"})


def alike(source: Path, recipe: Recipe, where: Where) -> bool:
    run = source / "pretrain"
    if not (source / RESULT).exists() or not (run / MODEL).exists():
        return False
    result = read_json(source / RESULT)
    if result["failed"] or result.get("where") != where:
        return False
    return not differences(recipe, load_recipe(str(run / RECIPE)), QUIET)


def bring(source: Path, to: Path, lessons: Mapping[str, Mapping[str, Any]], said: str) -> None:
    """The run in one moment, then its tasks: killed between the two, these are taught again. A task that lies here
    already belongs to a run that is no more."""
    coming = to / "pretrain.coming"
    for old in (coming, to / "tasks"):
        shutil.rmtree(old, ignore_errors=True)
    try:
        shutil.copytree(source / "pretrain", coming, ignore=shutil.ignore_patterns("checkpoints", "lock"))
        (coming / TAKEN).write_text(said, encoding="utf-8")
        coming.rename(to / "pretrain")
    except OSError:
        shutil.rmtree(coming, ignore_errors=True)
        raise
    for name, asked in lessons.items():
        done = source / "tasks" / f"{name}.json"
        made = read_json(done) if done.exists() else {}
        if made:
            made["recipe"]["model"] = asked["recipe"]["model"]
        if {key: made.get(key) for key in asked} == asked:
            write_json(to / "tasks" / done.name, made)
