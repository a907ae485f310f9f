"""Cells -> figures: each pre-trains, is asked what it knows, and is taught the tasks. None is made twice.

TO/CELL/seed-N/settings.json   all that decides the cell; another setting is refused, not mixed in
               pretrain/       its run, from whose last checkpoint a stopped cell goes on
               tasks/          a file a task that is done
               result.json     its figures, or why there are none; written in one moment

What another table has trained already is taken from there, if its folder is named.
"""

import gc
import hashlib
import json
import math
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from litebert.ablate.grid import Grid, Planned, Scale, ScaleName, plain
from litebert.ablate.once import RESULT, SETTINGS, Say, as_now, taught, unlike, wanted, write_json
from litebert.ablate.probe import probe_pairs
from litebert.ablate.reuse import check_reused, reuse, taken_from
from litebert.ablate.tasks import Trial, lesson
from litebert.config import UserError
from litebert.corpus.shards import MANIFEST, read_manifest
from litebert.files import first_line, read_json
from litebert.infer.embed import embedder
from litebert.infer.model import load
from litebert.recipe import Recipe, RunConfig, TuneRecipe
from litebert.report.info import describe
from litebert.train.heldout import PAIR, score_model
from litebert.train.pretrain import pretrain
from litebert.train.probe import probe
from litebert.train.processes import Processes, joined, pick_device
from litebert.train.run import METRICS, MODEL
from litebert.train.start import environment, resolve
from litebert.train.stopping import Stopped

TIMING = 0.02  # the standard error of a speed, as a share of it
ASKED = {"order": "sop", "next": "nsp"}  # column: the objective that teaches it


@dataclass(frozen=True)
class Job:
    """A table to be made, with everything it is made from."""

    name: str
    grid: Grid
    scale: ScaleName
    plan: tuple[Planned, ...]
    trials: dict[str, Trial]
    shards: str
    more: str  # shards of more text; "" where no cell wants them
    to: Path
    seeds: int
    device: str
    others: tuple[Path, ...] = ()  # folders of tables whose cells may be taken

    @property
    def how(self) -> Scale:
        return self.grid.scale(self.scale)

    def planned(self, name: str) -> Planned:
        return next(each for each in self.plan if each.name == name)

    def folder(self, name: str, seed: int) -> Path:
        return self.to / name / f"seed-{seed}"

    def turns(self) -> list[tuple[str, int]]:
        """A whole table of the first seed comes before the second."""
        return [(each.name, seed) for seed in range(self.seeds) for each in self.plan]


def run_all(job: Job, say: Say, asked: Sequence[int] = ()) -> None:
    """All cells that are not done, one after the other. A failed one is tried again, and keeps nobody waiting."""
    check(job)
    turns = job.turns()
    for number, (name, seed) in enumerate(turns, 1):
        if finished(job, name, seed) is None:
            say({"kind": "note", "text": f"cell {name}, seed {seed}: {number} of {len(turns)}"})
            make(job, name, seed, say, asked)


def check(job: Job) -> None:
    """What cannot be, said before anything is trained."""
    for shards in filter(None, (job.shards, job.more)):
        read_manifest(Path(shards))
    done = [finished(job, name, seed) for name, seed in job.turns()]
    if None in done:
        check_reused(job.others)
    for planned in job.plan:
        lessons(job, planned)
    for trial in job.trials.values():
        for path in filter(None, (trial.task.data, trial.task.train, trial.task.dev)):
            if not Path(path).exists():
                raise UserError(
                    f"{trial.title}: no {path}; give the folder that holds glue/, squad/ and race/ by --data"
                )


def finished(job: Job, name: str, seed: int) -> dict[str, Any] | None:
    """The result of a cell that is done. What was begun with other settings is no part of this table."""
    folder = job.folder(name, seed)
    result = read_json(folder / RESULT) if (folder / RESULT).exists() else None
    if (folder / SETTINGS).exists():
        differ = unlike(settings(job, name, seed), as_now(Recipe, folder / SETTINGS))
        if differ and (result is None or not result["failed"]):  # what came to nothing may be tried in another way
            raise UserError(
                f"{folder} was begun with other settings ({', '.join(differ[:3])}); "
                "choose another --to, or remove that folder"
            )
    return None if result is None or result["failed"] else result


def settings(job: Job, name: str, seed: int) -> dict[str, Any]:
    """All that decides a cell, as plain values; folders by what is in them, so that they may move."""
    planned = job.planned(name)
    recipe, cell = plain(seeded(planned.recipe, seed)), planned.cell
    recipe["data"]["shards"] = _digest(job.more if cell.text == "more" else job.shards)
    taught_by = {key: asdict(each) for key, each in lessons(job, planned).items()}
    for each in taught_by.values():
        each["task"] |= {key: Path(each["task"][key]).name for key in ("data", "train", "dev")}
    found = {
        "recipe": recipe,
        "tasks": taught_by,
        "columns": list(job.grid.columns),
        "pairs": job.how.pairs,
        "features": cell.features,
        "needs": {other: settings(job, other, seed) for other in cell.needs},
    }
    if cell.as_long_as:
        found["as_long_as"] = {cell.as_long_as: cell.by}
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def _digest(shards: str) -> str:
    return hashlib.sha256((Path(shards) / MANIFEST).read_bytes()).hexdigest()[:16]


def seeded(recipe: Recipe, seed: int) -> Recipe:
    return replace(recipe, run=replace(recipe.run, seed=recipe.run.seed + seed))


def lessons(job: Job, planned: Planned) -> dict[str, TuneRecipe]:
    family = planned.recipe.model.family
    return {name: lesson(name, trial, job.how.tune, family) for name, trial in job.trials.items()}


def make(job: Job, name: str, seed: int, say: Say, asked: Sequence[int] = ()) -> dict[str, Any]:
    """One cell, from wherever it stands to its result."""
    folder, failed, figures = job.folder(name, seed), None, {}
    asked_for = settings(job, name, seed)
    if (folder / SETTINGS).exists() and unlike(asked_for, as_now(Recipe, folder / SETTINGS)):
        shutil.rmtree(folder)
    write_json(folder / SETTINGS, asked_for)
    here = environment(Processes(pick_device(job.device)))
    where = {key: here[key] for key in ("device", "torch", "litebert")}
    lacking = [each for each in job.planned(name).cell.needs if finished(job, each, seed) is None]
    try:
        if lacking:
            raise UserError(f"needs the cell {lacking[0]}, which has no result")
        take(job, name, seed, where, say)
        for key, value in measure(job, name, seed, say):
            if not math.isfinite(value["value"]):
                raise UserError(f"{key} is not a finite number")
            figures[key] = value
            if asked:
                raise Stopped(0, asked[-1])
    except (UserError, RuntimeError, MemoryError) as problem:
        failed = first_line(problem)
        say({"kind": "note", "text": f"cell {name}, seed {seed} failed: {failed}"})
    result = {"cell": name, "seed": seed, "figures": figures, "failed": failed, "where": where}
    result |= {"taken": taken} if (taken := taken_from(folder)) else {}
    write_json(folder / RESULT, result)
    if failed is None:
        shutil.rmtree(folder / "pretrain" / "checkpoints", ignore_errors=True)
    _clean()
    return result


def take(job: Job, name: str, seed: int, where: dict[str, Any], say: Say) -> None:
    """From another table, if it has what this cell would become. What rests on other cells is made here."""
    planned, folder = job.planned(name), job.folder(name, seed)
    if job.others and not planned.cell.needs:
        recipe = resolve(whole_recipe(job, planned, seed), Processes(pick_device(job.device)))
        model = folder / "pretrain" / MODEL
        asked = {
            task: wanted(lesson_of(lesson, model, seed), 1)
            for task, lesson in lessons(job, planned).items()
            if not planned.cell.features
        }
        reuse(folder, recipe, asked, where, job.others, say)


def _clean() -> None:
    """The next cell finds the device as this one did: its memory free, and nothing compiled for other shapes."""
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


def measure(job: Job, name: str, seed: int, say: Say) -> Iterator[tuple[str, dict[str, float]]]:
    """The figures of a cell, as they come."""
    planned, columns = job.planned(name), job.grid.columns
    folder = job.folder(planned.cell.of or name, seed)
    final = trained(job, planned, seed, say) if not planned.cell.of else _final(folder)
    model, recipe = folder / "pretrain" / MODEL, planned.recipe
    if "parameters" in columns:
        counted = describe(name, load(model).config)["parameters"]["backbone_and_pooler"]
        yield "parameters", {"value": counted, "error": 0.0}
    last = _lines(folder / "pretrain" / METRICS, "train")[-1]
    if "speed" in columns:  # pieces a second over the whole of the training
        speed = last["pieces"] / max(1e-9, last["time"]["seconds"])
        yield "speed", {"value": speed, "error": TIMING * speed}
    if "steps" in columns:
        yield "steps", {"value": last["step"], "error": 0.0}
    if planned.cell.text == "more":  # all are asked about the same documents
        here, wanted = pick_device(job.device), recipe.evaluate.final_examples
        final = score_model(load(model), job.shards, recipe.data.objective, wanted, here, lambda _: None)
    for column, key in (("masked", "masked_accuracy"), ("perplexity", "perplexity")):
        if column in columns and key in final:
            yield column, {"value": final[key], "error": final[f"{key}_error"]}
    if final:
        yield from told(job, planned, model, final, say)
    for task, recipe_of in lessons(job, planned).items():
        yield f"task:{task}", learned(job, planned, seed, model, task, recipe_of, say)


def whole_recipe(job: Job, planned: Planned, seed: int) -> Recipe:
    """With its seed and its folders."""
    cell, recipe = planned.cell, seeded(planned.recipe, seed)
    shards = job.more if cell.text == "more" else job.shards
    recipe = replace(recipe, data=replace(recipe.data, shards=shards))
    if cell.start:
        start = str(job.folder(cell.start, seed) / "pretrain" / MODEL)
        recipe = replace(recipe, run=replace(recipe.run, init_from=start))
    if cell.teacher:
        teacher = str(job.folder(cell.teacher, seed) / "pretrain" / MODEL)
        recipe = replace(recipe, distill=replace(recipe.distill, teacher=teacher))
    if cell.as_long_as:
        recipe = replace(recipe, run=as_long(recipe.run, job.folder(cell.as_long_as, seed), cell.by))
    return recipe


def as_long(run: RunConfig, other: Path, by: str) -> RunConfig:
    """As many steps as another cell has made, or as much time as they took."""
    last = _lines(other / "pretrain" / METRICS, "train")[-1]
    if by == "steps":
        return replace(run, steps=last["step"], budget_minutes=0.0)
    return replace(run, steps=0, budget_minutes=last["time"]["seconds"] / 60)


def trained(job: Job, planned: Planned, seed: int, say: Say) -> dict[str, Any]:
    """Pre-train, or go on with it; what the held-out documents say of the finished model."""
    folder = job.folder(planned.name, seed) / "pretrain"
    with joined(job.device) as processes:
        return pretrain(whole_recipe(job, planned, seed), folder, True, processes, say).get("protocol", {})  # type: ignore[no-any-return]


def _lines(file: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["kind"] == kind]


def _final(folder: Path) -> dict[str, Any]:
    lines = _lines(folder / "pretrain" / METRICS, "final")
    return lines[-1]["protocol"] if lines else {}


def told(
    job: Job, planned: Planned, model: Path, final: dict[str, Any], say: Say
) -> Iterator[tuple[str, dict[str, float]]]:
    """Order and next: by the head that pre-training taught, or else by one on frozen states."""
    columns, trained_on = job.grid.columns, PAIR[planned.recipe.data.objective]
    for column, frozen in (("order", "order-frozen"), ("next", "next-frozen")):
        own = column == trained_on
        if column in columns and own:
            yield column, {"value": final[f"{column}_accuracy"], "error": final[f"{column}_accuracy_error"]}
        if frozen in columns or (column in columns and not own):
            found = probe_pairs(
                load(model),
                job.shards,
                ASKED[column],
                job.how.pairs,
                planned.recipe.evaluate.final_examples,
                pick_device(job.device),
                lambda text: say({"kind": "note", "text": text}),
            )
            if column in columns and not own:
                yield column, found | {"probed": 1.0}
            if frozen in columns:
                yield frozen, found


def learned(
    job: Job, planned: Planned, seed: int, model: Path, task: str, recipe: TuneRecipe, say: Say
) -> dict[str, float]:
    """A task, by fine-tuning or by a linear model of frozen layers."""
    metric = job.trials[task].metric
    if planned.cell.features:
        length = min(recipe.reading.length or 128, planned.recipe.model.positions)
        layers = planned.cell.features
        how = embedder(load(model), "mean", layers, length=length, device=pick_device(job.device))
        found = {each.name: each for each in probe(how, recipe.task, seed=seed).scores}
        return {"value": found[metric].value, "error": found[metric].error}
    recipe = lesson_of(recipe, model, seed)
    to = job.folder(planned.name, seed) / "tasks"
    scored = taught(recipe, to, task, 1, job.device, False, say)["scores"][metric]
    return {"value": scored["median"], "error": scored["error"]}


def lesson_of(recipe: TuneRecipe, model: Path, seed: int) -> TuneRecipe:
    """As a cell is taught it."""
    return replace(recipe, model=str(model), tune=replace(recipe.tune, seed=recipe.tune.seed + seed))


def results(job: Job) -> dict[str, list[dict[str, Any]]]:
    """What there is of each cell, seed by seed, failures included."""
    found: dict[str, list[dict[str, Any]]] = {each.name: [] for each in job.plan}
    for name, seed in job.turns():
        file = job.folder(name, seed) / RESULT
        if file.exists():
            found[name].append(read_json(file))
    return found
