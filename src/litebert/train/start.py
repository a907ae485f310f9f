"""A recipe and a directory -> what a run begins with: fresh weights, another model's, or the last checkpoint's."""

import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from litebert.config import DistillConfig, ModelConfig, UserError
from litebert.corpus.batches import Place, Stream
from litebert.corpus.shards import MANIFEST, file_checksum, read_manifest
from litebert.infer.model import load
from litebert.model.heads import Network
from litebert.model.weights import build
from litebert.recipe import Recipe
from litebert.text.tokenizer import Tokenizer
from litebert.train.dial import check_dial
from litebert.train.distill import check_teacher, first_weights
from litebert.train.growth import grown, with_layers
from litebert.train.objective import PRECISIONS, pretraining_heads, ready
from litebert.train.processes import Processes
from litebert.train.run import Run, differences, read_checkpoint
from litebert.train.schedule import stages
from litebert.train.supply import Places
from litebert.train.trainee import Snapshot, is_compiled, resolve_precision

R = TypeVar("R")


@dataclass(frozen=True)
class Prepared:
    """All that decides how a run goes on."""

    tokenizer: Tokenizer
    snapshot: Snapshot
    step: int
    places: Places
    totals: dict[str, Any] | None
    notes: tuple[str, ...]
    shards: str  # what tells them from others


def open_run(folder: Path, processes: Processes, agree: Callable[[Run], R]) -> tuple[R, Run | None]:
    """The directory, locked, and the recipe as it holds from now on. Only the first process has the directory."""
    run: Run | None = None

    def begin() -> R:
        nonlocal run
        run = Run(folder)
        try:
            return agree(run)
        except BaseException:
            run.abandon()
            raise

    return processes.on_lead(begin), run


def agreed(recipe: Recipe | None, resume: bool, processes: Processes, run: Run) -> Recipe:
    """The recipe of a run that begins, or of one that goes on."""
    if not run.begun():
        if recipe is None:
            raise UserError(f"there is no run in {run.folder} to resume; name a recipe to begin one")
        resolved = resolve(recipe, processes)
        run.begin(resolved)
        return resolved
    if not resume:
        raise UserError(f"{run.folder} holds a run already; go on with it by --resume, or choose another directory")
    stored = run.recipe()
    if recipe is None:
        return stored
    resolved = resolve(recipe, processes)
    differ = differences(resolved, stored)
    if differ:
        raise UserError(
            f"{run.folder} was begun with another recipe: {', '.join(differ[:4])} differ; "
            "resume without naming a recipe, or choose another directory"
        )
    changed = replace(stored, run=resolved.run)
    if changed != stored:
        run.begin(changed)
    return changed


def resolve(recipe: Recipe, processes: Processes) -> Recipe:
    """A recipe with nothing left open: the vocabulary is the tokenizer's, the precision the device's. What cannot run
    is found here, before anything is written."""
    if not recipe.data.shards:
        raise UserError("say which shards to train on: --set data.shards=FOLDER")
    if not recipe.run.steps and not recipe.run.budget_minutes:
        raise UserError("say how long to train: --set run.steps=N or --set run.budget_minutes=M")
    folder = Path(recipe.data.shards).resolve()
    read_manifest(folder)
    tokenizer = Tokenizer.load(folder / "tokenizer")
    model = recipe.model
    if recipe.run.init_from:
        model = _shape_of(recipe, tokenizer)
    else:
        model = replace(model, vocab_size=len(tokenizer), pad_id=tokenizer.pad_id)
    for phase in recipe.phases:
        longest = max(phase.lengths)
        if longest > model.positions:
            raise UserError(f"a phase of length {longest} does not fit the model's {model.positions} positions")
        with_layers(model, phase.passes)
    passes = [phase.passes or model.layers for phase in recipe.phases]
    phases = tuple(replace(phase, passes=each) for phase, each in zip(recipe.phases, passes, strict=True))
    pretraining_heads(model, recipe.data)
    taught = _with_teacher(recipe, model, tokenizer)
    check_dial(recipe.dial, model, min(passes))
    for phase in phases:
        for length in sorted(set(phase.lengths)):
            examples = recipe.examples(phase, length)
            Stream(str(folder), examples, phase.batch_of(length), ranks=processes.ranks).examples(check=False)
    if recipe.run.steps:
        stages(phases, recipe.run.steps)
    precision = resolve_precision(recipe.run, processes.device)
    start = _folder_of(recipe.run.init_from) if recipe.run.init_from else ""
    return replace(
        recipe,
        model=replace(model, layers=passes[-1]),
        phases=phases,
        data=replace(recipe.data, shards=str(folder)),
        run=replace(recipe.run, precision=precision, init_from=start),
        distill=taught,
    )


def _with_teacher(recipe: Recipe, model: ModelConfig, tokenizer: Tokenizer) -> DistillConfig:
    config = recipe.distill
    if not config.teacher:
        return config
    if recipe.run.init_from and config.start == "teacher":
        raise UserError("distill.start and run.init_from both say what the student begins with; give one of them")
    if recipe.dial.depths:
        raise UserError("a teacher and a dial at once are not possible: distil first, then dial the student")
    cache = str(Path(config.cache).resolve()) if config.cache else ""
    config = replace(config, teacher=_folder_of(config.teacher), cache=cache)
    check_teacher(load(config.teacher), config.teacher, config, model, tokenizer)
    return config


def _shape_of(recipe: Recipe, tokenizer: Tokenizer) -> ModelConfig:
    """The shape is that of the model to start from; the recipe still says dropout and, where it is free, depth."""
    start = load(_folder_of(recipe.run.init_from))
    if start.tokenizer is not None and start.tokenizer.checksum != tokenizer.checksum:
        raise UserError(
            f"{recipe.data.shards} was made with another tokenizer than {recipe.run.init_from} has; "
            "build the corpus again with that model as --tokenizer"
        )
    if start.config.vocab_size < len(tokenizer):
        raise UserError(f"the tokenizer has {len(tokenizer)} pieces and {recipe.run.init_from} knows fewer")
    model = replace(start.config, dropout=recipe.model.dropout, attention_dropout=recipe.model.attention_dropout)
    if recipe.data.objective != "mlm" and model.family in ("albert", "bert"):
        model = replace(model, pooler=True)
    return replace(model, layers=recipe.model.layers) if model.one_layer else model


def _folder_of(name: str) -> str:
    return str(Path(name).resolve()) if Path(name).exists() else name


def prepare(recipe: Recipe, run: Run | None, processes: Processes) -> Prepared:
    """What the run begins or goes on with. The first process reads it, the others get it."""
    tokenizer = Tokenizer.load(Path(recipe.data.shards) / "tokenizer")
    first = with_layers(recipe.model, recipe.phases[0].passes)
    heads = pretraining_heads(first, recipe.data)
    weights: dict[str, torch.Tensor] = {}
    moments: dict[str, torch.Tensor] = {}

    def read() -> tuple[ModelConfig, dict[str, Any], tuple[str, ...]]:
        last = run.latest() if run is not None else None
        if last is None:
            fresh, notes = _beginning(recipe, first)
            weights.update(fresh)
            return first, {"step": 0, "places": {}, "optimizer_steps": 0.0, "totals": None}, notes
        config, kept, more, state = read_checkpoint(last)
        weights.update(kept)
        moments.update(more)
        return config, state, (f"going on from step {state['step']}",)

    config, state, notes = processes.on_lead(read)
    shards = same_shards(Path(recipe.data.shards), state.get("shards"), processes)
    shared = processes.share_tensors(weights), processes.share_tensors(moments)
    snapshot = Snapshot(config, heads, *shared, state["optimizer_steps"])
    return Prepared(tokenizer, snapshot, state["step"], places_in(state, recipe), state["totals"], notes, shards)


def places_in(state: dict[str, Any], recipe: Recipe) -> Places:
    """Of a checkpoint. Those of earlier versions know one place, of whatever length they were at."""
    if "place" in state:
        return {phase.length: Place(*state["place"]) for phase in recipe.phases}
    return {int(length): Place(*place) for length, place in state["places"].items()}


def same_shards(folder: Path, before: str | None, processes: Processes) -> str:
    """What tells these shards from others, when every process has them, and they are those of the last checkpoint."""
    mine = file_checksum(folder / MANIFEST)
    if not processes.alike(mine):
        raise processes.mistake(
            f"{folder} does not hold the same shards on every machine; copy the first one's to all of them"
        )
    if before is not None and before != mine:
        raise processes.mistake(
            f"{folder} holds other shards than those that this run was begun with; build those again, or take the "
            "last checkpoint to them in another directory by --init-from"
        )
    return mine


def _beginning(recipe: Recipe, config: ModelConfig) -> tuple[dict[str, torch.Tensor], tuple[str, ...]]:
    heads = pretraining_heads(config, recipe.data)
    weights = dict(build(config, heads, recipe.run.seed).state_dict())
    if recipe.distill.teacher and recipe.distill.start == "teacher":
        teacher = recipe.distill.teacher
        return first_weights(load(teacher), teacher, config, weights), (f"the student begins with layers of {teacher}",)
    if not recipe.run.init_from:
        return weights, ()
    start = load(_folder_of(recipe.run.init_from))
    old = {name: tensor.float() for name, tensor in start.network.state_dict().items()}
    taken = grown(old, start.config, replace(config, pooler=start.config.pooler))
    fresh = sorted({name.rsplit(".", 1)[0] for name in weights if name not in taken})
    weights |= {name: tensor for name, tensor in taken.items() if name in weights}
    note = f"started from {recipe.run.init_from} ({start.config.layers} layers, here {config.layers})"
    return weights, (note, *([f"fresh weights for what it lacks: {', '.join(fresh)}"] if fresh else []))


def load_teacher(recipe: Recipe, processes: Processes) -> Network | None:
    """On every process's own device; it only reads."""
    if not recipe.distill.teacher:
        return None
    precision = PRECISIONS[recipe.run.precision]
    network = load(recipe.distill.teacher).network.to(processes.device, torch.promote_types(precision, torch.float32))
    network.eval().requires_grad_(False)
    ready(network, precision, is_compiled(recipe.run, processes))
    return network


def environment(processes: Processes) -> dict[str, Any]:
    """Where a run was started: one line of environment.jsonl."""
    from litebert import __version__

    device = processes.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "litebert": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": name,
        "processes": processes.ranks,
        "threads": torch.get_num_threads(),
        "cpus": os.cpu_count(),
        "platform": platform.platform(),
        "command": sys.argv,
    }
