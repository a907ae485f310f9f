"""A model, a task and a recipe -> a model that was taught it, the best of the run by the task's metric.

The directory is that of any run: killed at any moment, it goes on from its last checkpoint bit for bit. Of several
processes each learns from its share of every batch and scores its share of the dev set; the first has the directory.
"""

import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from litebert.infer.batch import to_batch
from litebert.infer.predict import Asked, listen
from litebert.model.packing import to_device
from litebert.recipe import Phase, TuneRecipe
from litebert.strict import UserError
from litebert.tasks.answers import Answers, best_threshold, decide, is_finite, scores
from litebert.tasks.features import Unit
from litebert.tasks.taught import Taught
from litebert.train.capture import Replay
from litebert.train.dial import drawn
from litebert.train.pretrain import KERNELS, NO_MEMORY
from litebert.train.processes import Processes
from litebert.train.run import MODEL, Run, differences
from litebert.train.schedule import rate_at, stages
from litebert.train.seat import BEST, Progress, Seat, take_seat
from litebert.train.session import Say
from litebert.train.start import open_run
from litebert.train.steps import Done, Update, Work, one_step, take_steps
from litebert.train.stopping import Stopped, signals
from litebert.train.trainee import Trainee
from litebert.train.tutor import Part, loss_of, weight_of

ANY_SHAPE = KERNELS[1:]  # cuDNN makes a plan for every shape it meets, and here there are many


def finetune(said: TuneRecipe | None, folder: Path, resume: bool, processes: Processes, say: Say) -> dict[str, Any]:
    """Begin a run or go on with one; returns its last line."""
    recipe, run = open_run(folder, processes, partial(_agree, said, resume))
    try:
        ended = processes.on_lead(lambda: run.ended() if run is not None else None)
        if ended is not None:
            say({"kind": "note", "text": f"this run is finished; its model is in {folder / MODEL}"})
            return ended
        with sdpa_kernel(ANY_SHAPE, set_priority=True), signals() as asked:
            seat, progress = take_seat(recipe, run, processes, say, asked)
            return teach(seat, progress)
    except RuntimeError as problem:
        if not any(sign in str(problem) for sign in NO_MEMORY):
            raise
        kept = f"; {run.intact()}" if run is not None else ""
        advice = "set tune.micro_batch lower (examples at once) and go on with --resume"
        raise UserError(f"out of memory; {advice}{kept}") from None
    finally:
        if run is not None:
            run.abandon()


def _anywhere(recipe: TuneRecipe) -> TuneRecipe:
    """The same with whole paths, so that the run can go on from any folder."""

    def whole(path: str) -> str:
        return str(Path(path).resolve()) if path and Path(path).exists() else path

    task = recipe.task
    task = replace(task, data=whole(task.data), train=whole(task.train), dev=whole(task.dev))
    guide = replace(recipe.distill, teacher=whole(recipe.distill.teacher))
    return replace(recipe, model=whole(recipe.model), task=task, distill=guide)


def _agree(recipe: TuneRecipe | None, resume: bool, run: Run) -> TuneRecipe:
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


def teach(seat: Seat, progress: Progress) -> dict[str, Any]:
    tune, steps = seat.recipe.tune, seat.steps
    work = work_of(seat)
    if progress.owed:
        pause(seat, progress, look_too=True)
    if over(seat, progress):  # a run that was stopped between its last step and its model
        return finish(seat, progress)
    seat.tutor.train()
    with closing(updates(seat, progress.step)) as feed:
        for made in take_steps(feed, seat.optimizer, work):
            progress.step += 1
            step, stop = progress.step, seat.stopping()
            seat.tally.add(made.done)
            if step % tune.log_every == 0 or step == steps:
                seat.tell(line(seat, step, made.update.rate))
                check_skips(seat)
            elif seat.tally.silent():
                seat.say(line(seat, step, made.update.rate, anew=False))
            if step % seat.every == 0 or step == steps or stop:
                with seat.tally.paused():
                    pause(seat, progress, look_too=step % seat.every == 0 or step == steps)
            if over(seat, progress):
                break
    return finish(seat, progress)


def pause(seat: Seat, progress: Progress, look_too: bool) -> None:
    """Score where it is due, save, and leave where somebody asked for it."""
    check_skips(seat)
    if look_too:
        look(seat, progress)
    save(seat, progress)
    stop = seat.stopping()
    if stop and (progress.owed or progress.step < seat.steps):
        if not seat.recipe.tune.keep:
            what = f"stopped at step {progress.step}; tune.keep = 0, so there is nothing to go on from"
            raise seat.processes.mistake(what)
        seat.processes.wait()  # whoever leaves first is a failure to torchrun, which ends the others
        raise Stopped(progress.step, stop)


def recorded(seat: Seat) -> bool:
    """Whether steps are replayed: a small batch takes a GPU less time than the host needs to ask for it."""
    alone = seat.processes.ranks == 1 and seat.processes.device.type == "cuda"
    return alone and seat.recipe.tune.capture == "auto"


def work_of(seat: Seat) -> Work[Part]:
    """What one step does. The loss is the mean over the whole batch, whatever part of it is here: processes average."""
    model, clip, ranks = seat.model, seat.recipe.optimizer.clip, seat.processes.ranks

    def loss(part: Part) -> tuple[Tensor, Tensor]:
        value, counted = loss_of(model, part)
        return value * ranks, counted

    def work(parts: list[Part]) -> Done:
        return one_step(parts, model, seat.optimizer, loss, clip)

    return Replay(work) if recorded(seat) else work


def over(seat: Seat, progress: Progress) -> bool:
    patience = seat.recipe.tune.patience
    return progress.step >= seat.steps or bool(patience and progress.waited >= patience)


def updates(seat: Seat, step: int) -> Generator[Update[Part], None, None]:
    """Batches from a step on: which examples an epoch shows in which order follows from the seed and its number."""
    tune, task, train, processes = seat.recipe.tune, seat.lesson.taught.task, seat.lesson.train, seat.processes
    plan = stages((Phase(rate=tune.rate, warmup=tune.warmup),), seat.steps)
    hold = 1.0 if tune.schedule == "constant" else 0.0
    weights = None if seat.tutor.weights is None else seat.tutor.weights.tolist()
    few = seat.lesson.taught.reading.length if recorded(seat) else 0
    while True:
        epoch, inside = divmod(step, seat.per_epoch)
        order = np.random.default_rng((tune.seed, epoch)).permutation(len(train))
        for first in range(inside * tune.batch, len(train), tune.batch):
            some = [train[number] for number in order[first : first + tune.batch]]
            whole = sum(weight_of(unit, task, weights) for unit in some)
            mine = processes.dealt(some)
            value = 1 / max(whole, 1e-12) if mine else 0.0  # who has none at an epoch's end looks at one, for nothing
            share = to_device(torch.tensor(value), processes.device)
            depth = drawn(seat.recipe.dial, tune.seed, step)
            groups = _parts(mine or some[:1], tune.micro_batch)
            parts = [Part(to_batch(each, task, processes.device, few), share, depth) for each in groups]
            seed = (tune.seed * 1_000_003 + step) * processes.ranks + processes.rank
            yield Update(parts, rate_at(plan, min(step, seat.steps - 1), hold), seed % (1 << 63))
            step += 1


def _parts(some: Sequence[Unit], size: int) -> list[Sequence[Unit]]:
    size = size or len(some)
    return [some[first : first + size] for first in range(0, len(some), size)]


def line(seat: Seat, step: int, rate: float, anew: bool = True) -> dict[str, Any]:
    where = {"kind": "tune", "step": step, "steps": seat.steps, "epoch": step / seat.per_epoch, "rate": rate}
    return where | seat.tally.line(step, seat.steps, seat.recipe.tune.batch, anew)


def check_skips(seat: Seat) -> None:
    most, advice = seat.recipe.tune.most_skips, "begin again with a lower rate"
    seat.tally.skips.check(most, seat.kept, advice, seat.processes.mistake)


def look(seat: Seat, progress: Progress) -> None:
    """Score the dev set; a model that is better than any before it is kept. Whoever is asked to stop does not score to
    the end: that is owed, and made good when the run goes on."""
    begun = time.perf_counter()
    scored = score(seat)
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
        if seat.run is not None:
            now = trainee(seat).snapshot()
            seat.run.finish((now.config, now.heads, now.weights), seat.lesson.tokenizer, taught, BEST)
    seat.tell(
        {"kind": "dev", "step": progress.step, "scores": found, "best": better}
        | {"time": {"seconds": time.perf_counter() - begun}}
    )


def score(seat: Seat) -> tuple[Taught, list[dict[str, Any]]] | None:
    """The dev set's scores; where questions may have no answer, with the threshold that suits it best. None: asked to
    stop before the end."""
    taught, dev, processes = seat.lesson.taught, seat.lesson.dev, seat.processes
    model = Asked(seat.tutor.network.eval(), seat.lesson.tokenizer, taught.task, taught.reading, processes.device)
    mine = processes.dealt(dev)
    heard = list(takewhile(lambda _: not seat.asked, (each for _, each, _ in listen([model], mine))))
    if processes.total(len(mine) - len(heard))[0]:
        return None
    said = processes.gathered(heard)
    if not all(map(is_finite, said)):
        raise processes.mistake(f"the model's answers are not finite; {seat.kept}; begin again with a lower rate")
    task = taught.task
    if task.unanswerable:
        answers = [each for each in said if isinstance(each, Answers)]
        task = replace(task, threshold=best_threshold([example.target for example in dev], answers))  # type: ignore[misc]
    found = scores(task, dev, [decide(task, each) for each in said])
    return Taught(task, taught.reading), [asdict(each) for each in found]


def trainee(seat: Seat) -> Trainee:
    return Trainee(seat.tutor.network, seat.tutor, seat.optimizer, 0)


def save(seat: Seat, progress: Progress) -> None:
    counted = seat.tally.saved()
    if seat.run is None or not seat.recipe.tune.keep:
        return
    now = trainee(seat).snapshot()
    state = {"step": progress.step, "progress": asdict(progress), "optimizer_steps": now.steps}
    state |= {"examples": seat.lesson.digest, "tally": counted}
    model = (now.config, now.heads, now.weights)
    taught = seat.lesson.taught
    seat.run.save(progress.step, model, seat.lesson.tokenizer, now.moments, state, seat.recipe.tune.keep, taught)


def finish(seat: Seat, progress: Progress) -> dict[str, Any]:
    """The best model of the run in a folder of its own, and its scores once more as the last line."""

    def last() -> dict[str, Any]:
        assert seat.run is not None, "the first process has the directory"
        found = [line for line in seat.run.lines() if line["kind"] == "dev" and line["step"] == progress.best_step]
        line = {"kind": "final", "step": progress.step, "best_step": progress.best_step, "scores": found[-1]["scores"]}
        seat.tell(line)
        seat.say({"kind": "note", "text": f"the model is in {seat.run.rename(BEST, MODEL)}"})
        return line

    return seat.processes.on_lead(last)
