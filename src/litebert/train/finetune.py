"""A model, a task and a recipe -> a model that was taught it, the best of the run by the task's metric.

The directory is that of any run: killed at any moment, it goes on from its last checkpoint bit for bit.
"""

import json
import statistics
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.attention import sdpa_kernel

from litebert.files import copy_folder, replace_file, unswap
from litebert.infer.batch import to_batch
from litebert.infer.model import load
from litebert.infer.predict import Asked, listen
from litebert.model.packing import to_device
from litebert.recipe import Phase, TuneRecipe
from litebert.strict import UserError
from litebert.tasks.answers import Answers, best_threshold, decide, is_finite, scores
from litebert.tasks.features import Unit
from litebert.tasks.taught import Taught
from litebert.train.capture import Replay
from litebert.train.dial import check_dial, drawn
from litebert.train.lesson import Lesson, class_weights, guide_of, layer_scale, pupil, read_lesson
from litebert.train.objective import PRECISIONS
from litebert.train.optim import Lamb, build_optimizer
from litebert.train.pretrain import KERNELS, NO_MEMORY, Say
from litebert.train.processes import Processes, pick_device
from litebert.train.run import MODEL, Run, differences, read_checkpoint
from litebert.train.schedule import rate_at, stages
from litebert.train.start import environment
from litebert.train.steps import Done, Update, Work, one_step, take_steps
from litebert.train.stopping import Stopped, signals
from litebert.train.tally import Tally
from litebert.train.trainee import Trainee, resolve_precision, restore
from litebert.train.tutor import Part, Tutor, loss_of, weight_of

BEST = "best"
ANY_SHAPE = KERNELS[1:]  # cuDNN makes a plan for every shape it meets, and here there are many


@dataclass(frozen=True)
class Seat:
    """What stays the same while a model is taught."""

    recipe: TuneRecipe
    lesson: Lesson
    tutor: Tutor
    optimizer: Lamb
    device: torch.device
    run: Run
    say: Say
    tally: Tally

    def tell(self, line: dict[str, Any]) -> None:
        if line["kind"] != "note":
            self.run.log(line)
        self.say(line)

    @property
    def per_epoch(self) -> int:
        return -(-len(self.lesson.train) // self.recipe.tune.batch)

    @property
    def steps(self) -> int:
        return self.recipe.tune.steps or max(1, round(self.recipe.tune.epochs * self.per_epoch))

    @property
    def every(self) -> int:
        return self.recipe.tune.evaluate_every or self.per_epoch


@dataclass
class Progress:
    """Where a run stands."""

    step: int = 0
    best: float | None = None  # by the task's first metric
    best_step: int = 0
    waited: int = 0  # looks since
    owed: bool = False  # asked to stop while it was scored: that look is still to come


def finetune(recipe: TuneRecipe | None, folder: Path, resume: bool, device: str, say: Say) -> dict[str, Any]:
    """Begin a run or go on with one; returns its last line."""
    run = Run(folder)
    try:
        recipe = _agree(recipe, run, resume)
        ended = run.ended()
        if ended is not None:
            say({"kind": "note", "text": f"this run is finished; its model is in {folder / MODEL}"})
            return ended
        with sdpa_kernel(ANY_SHAPE, set_priority=True), signals() as asked:
            seat, progress = take_seat(recipe, run, pick_device(device), say)
            return teach(seat, progress, asked)
    except RuntimeError as problem:
        if not any(sign in str(problem) for sign in NO_MEMORY):
            raise
        advice = "set tune.micro_batch lower (examples at once) and go on with --resume"
        raise UserError(f"out of memory; {advice}; {run.intact()}") from None
    finally:
        run.abandon()


def _anywhere(recipe: TuneRecipe) -> TuneRecipe:
    """The same with whole paths, so that the run can go on from any folder."""

    def whole(path: str) -> str:
        return str(Path(path).resolve()) if path and Path(path).exists() else path

    task = recipe.task
    task = replace(task, data=whole(task.data), train=whole(task.train), dev=whole(task.dev))
    guide = replace(recipe.distill, teacher=whole(recipe.distill.teacher))
    return replace(recipe, model=whole(recipe.model), task=task, distill=guide)


def _agree(recipe: TuneRecipe | None, run: Run, resume: bool) -> TuneRecipe:
    recipe = None if recipe is None else _anywhere(recipe)
    if not run.begun():
        if recipe is None:
            raise UserError(f"there is no run in {run.folder} to resume; say which model to teach, and what")
        return recipe
    if not resume:
        raise UserError(f"{run.folder} holds a run already; go on with it by --resume, or choose another directory")
    stored = run.tune_recipe()
    differ = differences(recipe, stored) if recipe is not None else []
    if differ:
        raise UserError(
            f"{run.folder} was begun with another recipe: {', '.join(differ[:4])} differ; "
            "resume without saying it again, or choose another directory"
        )
    return recipe or stored


def take_seat(recipe: TuneRecipe, run: Run, device: torch.device, say: Say) -> tuple[Seat, Progress]:
    """Everything read and checked before the run begins; a run that was stopped goes on from its checkpoint."""
    model = load(recipe.model)
    lesson = read_lesson(recipe, model)
    network, notes = pupil(model, lesson.taught.task, recipe.tune)
    weights = class_weights(lesson.taught.task, lesson.train, recipe.task)
    state: dict[str, Any] = {}
    last, progress = run.latest(), Progress()
    unswap(run.folder / BEST)
    if last is not None:
        _, kept, moments, state = read_checkpoint(last)
        if state.get("examples", lesson.digest) != lesson.digest:
            raise UserError(
                f"the examples or labels are not those that {run.folder} was begun with; put the old files back, or "
                "choose another directory"
            )
        network.load_state_dict(kept)
        progress = Progress(**state["progress"])
        notes = (f"going on from step {progress.step}",)
    precision = PRECISIONS[resolve_precision(recipe.tune, device)]
    network = network.to(device, torch.promote_types(precision, torch.float32))
    network.encoder.embeddings.compute = precision
    teacher = guide_of(recipe, lesson, precision, device)
    tutor = Tutor(network, lesson.taught.task, weights, teacher, recipe.distill, recipe.dial).to(device)
    scale = partial(layer_scale, network, recipe.tune.layer_decay)
    optimizer = build_optimizer(network, recipe.optimizer, scale)
    if last is not None:
        restore(optimizer, network, moments, state["optimizer_steps"])
    check_dial(recipe.dial, network.config, network.config.layers)
    if not run.begun():
        run.begin(recipe)
    run.start_metrics(progress.step)
    run.append("environment.jsonl", environment(Processes(device)))
    for note in (*lesson.notes, *notes):
        say({"kind": "note", "text": note})
    tally = Tally(device, state.get("tally", {}))
    return Seat(recipe, lesson, tutor, optimizer, device, run, say, tally), progress


def teach(seat: Seat, progress: Progress, asked: Sequence[int]) -> dict[str, Any]:
    tune, tutor, steps = seat.recipe.tune, seat.tutor, seat.steps
    work = work_of(seat)
    if progress.owed:
        pause(seat, progress, asked, look_too=True)
    if over(seat, progress):  # a run that was stopped between its last step and its model
        return finish(seat, progress)
    tutor.train()
    with closing(updates(seat, progress.step)) as feed:
        for made in take_steps(feed, seat.optimizer, work):
            progress.step += 1
            step = progress.step
            seat.tally.add(made.done)
            if step % tune.log_every == 0 or step == steps:
                seat.tell(line(seat, step, made.update.rate))
                check_skips(seat)
            elif seat.tally.silent():
                seat.say(line(seat, step, made.update.rate, anew=False))
            if step % seat.every == 0 or step == steps or asked:
                with seat.tally.paused():
                    pause(seat, progress, asked, look_too=step % seat.every == 0 or step == steps)
            if over(seat, progress):
                break
    return finish(seat, progress)


def pause(seat: Seat, progress: Progress, asked: Sequence[int], look_too: bool) -> None:
    """Score where it is due, save, and leave where somebody asked for it."""
    check_skips(seat)
    if look_too:
        look(seat, progress, asked)
    save(seat, progress)
    if asked and (progress.owed or progress.step < seat.steps):
        if not seat.recipe.tune.keep:
            raise UserError(f"stopped at step {progress.step}; tune.keep = 0, so there is nothing to go on from")
        raise Stopped(progress.step, asked[-1])


def recorded(seat: Seat) -> bool:
    """Whether steps are replayed: a small batch takes a GPU less time than the host needs to ask for it."""
    return seat.device.type == "cuda" and seat.recipe.tune.capture == "auto"


def work_of(seat: Seat) -> Work[Part]:
    """What one step does."""
    tutor, clip = seat.tutor, seat.recipe.optimizer.clip

    def work(parts: list[Part]) -> Done:
        return one_step(parts, tutor, seat.optimizer, partial(loss_of, tutor), clip)

    return Replay(work) if recorded(seat) else work


def over(seat: Seat, progress: Progress) -> bool:
    patience = seat.recipe.tune.patience
    return progress.step >= seat.steps or bool(patience and progress.waited >= patience)


def updates(seat: Seat, step: int) -> Generator[Update[Part], None, None]:
    """Batches from a step on: which examples an epoch shows in which order follows from the seed and its number."""
    tune, task, train = seat.recipe.tune, seat.lesson.taught.task, seat.lesson.train
    plan = stages((Phase(rate=tune.rate, warmup=tune.warmup),), seat.steps)
    hold = 1.0 if tune.schedule == "constant" else 0.0
    weights = None if seat.tutor.weights is None else seat.tutor.weights.tolist()
    while True:
        epoch, inside = divmod(step, seat.per_epoch)
        order = np.random.default_rng((tune.seed, epoch)).permutation(len(train))
        for first in range(inside * tune.batch, len(train), tune.batch):
            some = [train[number] for number in order[first : first + tune.batch]]
            whole = sum(weight_of(unit, task, weights) for unit in some)
            share = to_device(torch.tensor(1 / max(whole, 1e-12)), seat.device)
            few = seat.lesson.taught.reading.length if recorded(seat) else 0
            depth = drawn(seat.recipe.dial, tune.seed, step)
            groups = _parts(some, tune.micro_batch)
            parts = [Part(to_batch(each, task, seat.device, few), share, depth) for each in groups]
            seed = (tune.seed * 1_000_003 + step) % (1 << 63)
            yield Update(parts, rate_at(plan, min(step, seat.steps - 1), hold), seed)
            step += 1


def _parts(some: list[Unit], size: int) -> list[list[Unit]]:
    size = size or len(some)
    return [some[first : first + size] for first in range(0, len(some), size)]


def line(seat: Seat, step: int, rate: float, anew: bool = True) -> dict[str, Any]:
    where = {"kind": "tune", "step": step, "steps": seat.steps, "epoch": step / seat.per_epoch, "rate": rate}
    return where | seat.tally.line(step, seat.steps, seat.recipe.tune.batch, anew)


def check_skips(seat: Seat) -> None:
    seat.tally.skips.check(seat.recipe.tune.most_skips, seat.run.intact(), "begin again with a lower rate")


def look(seat: Seat, progress: Progress, asked: Sequence[int] = ()) -> None:
    """Score the dev set; a model that is better than any before it is kept. Whoever is asked to stop does not score to
    the end: that is owed, and made good when the run goes on."""
    begun = time.perf_counter()
    scored = score(seat, asked)
    seat.tutor.train()
    progress.owed = scored is None
    if scored is None:
        return
    taught, found = scored
    value = found[0]["value"]
    better = progress.best is None or value > progress.best
    progress.waited = 0 if better else progress.waited + 1
    if better:
        progress.best, progress.best_step = value, progress.step
        now = trainee(seat).snapshot()
        seat.run.finish((now.config, now.heads, now.weights), seat.lesson.tokenizer, taught, BEST)
    seat.tell(
        {"kind": "dev", "step": progress.step, "scores": found, "best": better}
        | {"time": {"seconds": time.perf_counter() - begun}}
    )


def score(seat: Seat, asked: Sequence[int] = ()) -> tuple[Taught, list[dict[str, Any]]] | None:
    """The dev set's scores; where questions may have no answer, with the threshold that suits it best. None: asked to
    stop before the end."""
    taught, dev = seat.lesson.taught, seat.lesson.dev
    model = Asked(seat.tutor.network.eval(), seat.lesson.tokenizer, taught.task, taught.reading, seat.device)
    said = list(takewhile(lambda _: not asked, (each for _, each, _ in listen([model], dev))))
    if len(said) < len(dev):
        return None
    if not all(map(is_finite, said)):
        raise UserError(f"the model's answers are not finite; {seat.run.intact()}; begin again with a lower rate")
    task = taught.task
    if task.unanswerable:
        heard = [each for each in said if isinstance(each, Answers)]
        task = replace(task, threshold=best_threshold([example.target for example in dev], heard))  # type: ignore[misc]
    found = scores(task, dev, [decide(task, each) for each in said])
    return Taught(task, taught.reading), [asdict(each) for each in found]


def trainee(seat: Seat) -> Trainee:
    return Trainee(seat.tutor.network, seat.tutor, seat.optimizer, 0)


def save(seat: Seat, progress: Progress) -> None:
    if not seat.recipe.tune.keep:
        return
    now = trainee(seat).snapshot()
    state = {"step": progress.step, "progress": asdict(progress), "optimizer_steps": now.steps}
    state |= {"examples": seat.lesson.digest, "tally": seat.tally.saved()}
    model = (now.config, now.heads, now.weights)
    taught = seat.lesson.taught
    seat.run.save(progress.step, model, seat.lesson.tokenizer, now.moments, state, seat.recipe.tune.keep, taught)


def finish(seat: Seat, progress: Progress) -> dict[str, Any]:
    """The best model of the run in a folder of its own, and its scores once more as the last line."""
    found = [line for line in seat.run.lines() if line["kind"] == "dev" and line["step"] == progress.best_step]
    line = {"kind": "final", "step": progress.step, "best_step": progress.best_step, "scores": found[-1]["scores"]}
    seat.tell(line)
    seat.say({"kind": "note", "text": f"the model is in {seat.run.rename(BEST, MODEL)}"})
    return line


def finetune_seeds(recipe: TuneRecipe, folder: Path, seeds: int, resume: bool, device: str, say: Say) -> dict[str, Any]:
    """Several runs that differ by their seed alone; the best one's model is the directory's. Median, best and spread
    are over the seeds, as the papers report them."""
    lines: list[dict[str, Any]] = []
    with signals() as asked:
        for number in range(seeds):
            if asked:  # when one had made its last step
                raise Stopped(lines[-1]["step"] if lines else 0, asked[-1])
            seed = recipe.tune.seed + number
            inside = folder / f"seed-{seed}"
            say({"kind": "note", "text": f"seed {seed}, {number + 1} of {seeds}"})
            again, mine = resume and inside.exists(), replace(recipe, tune=replace(recipe.tune, seed=seed))
            lines.append(finetune(mine, inside, again, device, say) | {"seed": seed})
    names = [score["name"] for score in lines[0]["scores"]]
    table = {name: [line["scores"][at]["value"] for line in lines] for at, name in enumerate(names)}
    best = max(range(seeds), key=lambda at: table[names[0]][at])
    summary = {
        name: {
            "median": statistics.median(values),
            "best": max(values),
            "least": min(values),
            "spread": statistics.stdev(values) if seeds > 1 else 0.0,
            "error": statistics.median(line["scores"][at]["error"] for line in lines),
        }
        for at, (name, values) in enumerate(table.items())
    }
    copy_folder(folder / f"seed-{lines[best]['seed']}" / MODEL, folder / MODEL)
    ran = {"kind": "seeds", "seeds": [line["seed"] for line in lines], "best_seed": lines[best]["seed"]}
    replace_file(folder / "seeds.json", (json.dumps(ran | {"scores": summary}, indent=1) + "\n").encode())
    return ran | {"scores": summary}
