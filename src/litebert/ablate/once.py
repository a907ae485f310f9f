"""What is made once: results with the settings that made them, read again instead of made again."""

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from litebert.config import UserError
from litebert.files import read_json, replace_file
from litebert.recipe import Recipe, TuneRecipe
from litebert.strict import parse
from litebert.train.processes import Processes, pick_device
from litebert.train.run import HOW, flat
from litebert.train.seeds import finetune_seeds

RESULT, SETTINGS = "result.json", "settings.json"
Say = Callable[[dict[str, Any]], object]


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """In one moment, its folder too."""
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, (json.dumps(value, indent=1) + "\n").encode())


def unlike(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Settings that decide a result and differ, as `section.key`; how a device is used decides nothing."""
    a, b = (flat(json.loads(json.dumps(side)), plain=False) for side in (ours, theirs))
    return [key for key in sorted({*a, *b}) if a.get(key) != b.get(key) and key.split(".")[-1] not in HOW]


def as_now(kind: type[Recipe] | type[TuneRecipe], file: Path) -> dict[str, Any]:
    """What a file says of how something was made, as this version would write it: a setting that an earlier one did not
    know has its usual value."""
    made: dict[str, Any] = read_json(file)
    with suppress(UserError):  # of settings that are no more, or a damaged file: it differs, and is told so
        made["recipe"] = asdict(parse(kind, made.get("recipe", {})))
    return made


def made_before(file: Path, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """The result in this file; None where there is none. One that was made with other settings is not mixed in."""
    if not file.exists():
        return None
    made = as_now(TuneRecipe, file)
    differ = unlike(asked, {key: made.get(key) for key in asked})
    if differ and not made.get("failed"):
        raise UserError(
            f"{file} was made with other settings ({', '.join(differ[:3])}); choose another folder, or remove it"
        )
    return None if differ else made


def wanted(recipe: TuneRecipe, seeds: int) -> dict[str, Any]:
    """All that decides what a model is taught, as it is written."""
    return json.loads(json.dumps({"recipe": asdict(recipe), "seeds": seeds}))  # type: ignore[no-any-return]


def taught(
    recipe: TuneRecipe,
    to: Path,
    name: str,
    seeds: int,
    device: str,
    keep: bool,
    say: Say,
) -> dict[str, Any]:
    """One model on one task. What is finished is read, not made again."""
    file, run = to / f"{name}.json", to / "runs" / name
    asked = wanted(recipe, seeds)
    made = made_before(file, asked)
    if made is not None:
        return made
    found = finetune_seeds(recipe, run, seeds, run.exists(), Processes(pick_device(device)), say)
    write_json(file, asked | {"scores": found["scores"]})
    if not keep:
        shutil.rmtree(run)
    return {**asked, "scores": found["scores"]}
