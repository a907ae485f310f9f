"""What the user said -> a job: the recipe, the folders and the tasks of a table; and what every table would cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from litebert.ablate.grid import SCALES, Grid, grid_names, model_of, plan_cells, read_grid
from litebert.ablate.run import Job
from litebert.ablate.tasks import AUTHORS, trial
from litebert.ablate.text import shipped_shards
from litebert.config import UserError
from litebert.model.cost import training_flops
from litebert.recipe import Recipe
from litebert.strict import neighbour
from litebert.train.schedule import stages

NONE = "none"  # no task at all: pre-training alone is looked at


def new_job(
    name: str,
    scale: str,
    to: Path,
    shards: str = "",
    more: str = "",
    data: str = "",
    seeds: int = 1,
    sets: Sequence[str] = (),
    cells: Sequence[str] = (),
    tasks: Sequence[str] = (),  # none: the scale's; NONE: not any
    device: str = "auto",
    others: Sequence[Path] = (),  # tables whose cells may be taken
) -> Job:
    grid = read_grid(name)
    if scale not in SCALES:
        raise UserError(f"--scale {scale!r}{neighbour(scale, SCALES)}")
    plan = plan_cells(grid, scale, sets, cells)
    chosen = tuple(tasks) or grid.scale(scale).tasks
    if NONE in chosen:
        if len(chosen) > 1:
            raise UserError(f"--task {NONE} leaves no task, and {len(chosen) - 1} more were named")
        chosen = ()
    wants_more = any(each.cell.text == "more" for each in plan)
    if scale == "smoke" and not shards:  # what ships with the package, made beside the cells
        shards = str(shipped_shards(to / "text", less=wants_more))
        more = more or (str(shipped_shards(to / "text")) if wants_more else "")
    if not shards:
        raise UserError(f"--scale {scale} trains on text of yours: --shards FOLDER, as litebert corpus build makes it")
    if wants_more and not more:
        raise UserError(f"{name} compares text with more text: --more-shards FOLDER, built with the same tokenizer")
    if not data and any(task != AUTHORS for task in chosen):
        raise UserError(f"the tasks {', '.join(chosen)} want files: --data FOLDER, which holds glue/, squad/ and race/")
    trials = {task: trial(task, Path(data).resolve()) for task in chosen}
    here, there = (str(Path(each).resolve()) if each else "" for each in (shards, more))
    title = Path(name).stem if name.endswith(".toml") else name
    more = there if wants_more else ""
    return Job(title, grid, scale, tuple(plan), trials, here, more, to, seeds, device, tuple(others))


def costs() -> list[dict[str, Any]]:
    """Every table, with how many cells it has and what their pre-training takes at each scale."""
    return [
        {"name": name, "title": grid.title, "cells": len(grid.cells)} | {scale: cost(grid, scale) for scale in SCALES}
        for name in grid_names()
        for grid in [read_grid(name)]
    ]


def cost(grid: Grid, scale: str) -> dict[str, float]:
    """Steps, minutes and FLOPs of the cells together; where a budget is in minutes, how many steps fit is not known."""
    recipes = [each.recipe for each in plan_cells(grid, scale) if not each.cell.of]
    return {
        "steps": sum(recipe.run.steps for recipe in recipes),
        "minutes": sum(recipe.run.budget_minutes for recipe in recipes),
        "flops": sum(flops(recipe) for recipe in recipes),
    }


def flops(recipe: Recipe) -> float:
    """Of the matrix products of a run whose steps are known, with every sequence full; of a teacher's none."""
    if not recipe.run.steps:
        return 0.0
    model, found = model_of(recipe), 0.0
    for stage in stages(recipe.phases, recipe.run.steps):
        phase = stage.phase
        pieces, lengths = phase.batch * phase.length, phase.lengths
        looks = sum(pieces * length for length in lengths) // len(lengths)
        examples = sum(map(phase.batch_of, lengths)) // len(lengths)
        masked = round(recipe.examples(phase).mask.rate * pieces)
        compared = recipe.distill.teacher or recipe.dial.depths  # then all states are finished
        read = None if compared else masked + examples
        step = training_flops(model, phase.passes or model.layers, pieces, looks, masked, read)
        found += step * (stage.end - stage.first)
    return found
