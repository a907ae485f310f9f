"""A recipe for fine-tuning and a directory -> everything a run begins with, or goes on with, read and checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from litebert.files import unswap
from litebert.infer.model import load
from litebert.recipe import TuneRecipe
from litebert.strict import UserError
from litebert.train.dial import check_dial
from litebert.train.lesson import Lesson, class_weights, guide_of, layer_scale, pupil, read_lesson
from litebert.train.objective import PRECISIONS
from litebert.train.optim import Lamb, build_optimizer
from litebert.train.processes import Processes
from litebert.train.run import Run, read_checkpoint
from litebert.train.session import Say
from litebert.train.start import environment
from litebert.train.stopping import signal_of
from litebert.train.tally import Tally
from litebert.train.trainee import State, in_copies, quicker, resolve_precision, restore
from litebert.train.tutor import Tutor

BEST = "best"


@dataclass(frozen=True)
class Seat:
    """What stays the same while a model is taught."""

    recipe: TuneRecipe
    lesson: Lesson
    tutor: Tutor
    model: nn.Module  # the tutor, wrapped for many devices where there are many
    optimizer: Lamb
    processes: Processes
    run: Run | None  # the first process's; the others write nothing
    say: Say
    tally: Tally
    asked: Sequence[int] = ()  # signals that ask to stop, as they arrive

    def tell(self, line: dict[str, Any]) -> None:
        if self.run is not None and line["kind"] != "note":
            self.run.log(line)
        self.say(line)

    def stopping(self) -> int:
        """The signal to stop by, or 0; of several processes all stop where one is asked to."""
        return signal_of(self.asked, self.processes.total(len(self.asked))[0])

    @property
    def kept(self) -> str:
        """What a run that breaks off can go on from."""
        return self.run.intact() if self.run is not None else ""

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


def take_seat(
    recipe: TuneRecipe, run: Run | None, processes: Processes, say: Say, asked: Sequence[int] = ()
) -> tuple[Seat, Progress]:
    """Everything read and checked before the run begins; a run that was stopped goes on from its checkpoint."""
    device = processes.device
    precision = PRECISIONS[resolve_precision(recipe.tune, device)]

    def read() -> tuple[Lesson, Tutor, tuple[str, ...]]:
        model = load(recipe.model)
        lesson = read_lesson(recipe, model)
        task = lesson.taught.task
        network, notes = pupil(model, task, recipe.tune)
        check_dial(recipe.dial, network.config, network.config.layers)
        weights = class_weights(task, lesson.train, recipe.task, device)
        teacher = guide_of(recipe, lesson, precision, device)
        return (
            lesson,
            Tutor(network, task, weights, teacher, recipe.distill, recipe.dial),
            (*notes, *quicker(recipe.tune, device)),
        )

    lesson, tutor, notes = processes.each(read)
    if not processes.alike(lesson.digest):
        raise processes.mistake("the examples are not the same on every machine; copy the first one's to all of them")
    kept, moments, state = last_state(run, lesson, processes)
    network, progress = tutor.network, Progress(**state.get("progress", {}))
    network.to(device, torch.promote_types(precision, torch.float32))
    network.encoder.embeddings.compute = precision
    if kept:
        network.load_state_dict(kept)
        notes = (f"going on from step {progress.step}",)
    model = in_copies(tutor, processes)
    scale = partial(layer_scale, network, recipe.tune.layer_decay)
    optimizer = build_optimizer(network, recipe.optimizer, scale)
    if kept:
        restore(optimizer, network, moments, state["optimizer_steps"])
    if run is not None:
        if not run.begun():
            run.begin(recipe)
        run.start_metrics(progress.step)
        run.append("environment.jsonl", environment(processes))
    for note in (*lesson.notes, *notes):
        say({"kind": "note", "text": note})
    tally = Tally(processes, state.get("tally", {}))
    return Seat(recipe, lesson, tutor, model, optimizer, processes, run, say, tally, asked), progress


def last_state(run: Run | None, lesson: Lesson, processes: Processes) -> tuple[State, State, dict[str, Any]]:
    """Weights, moments and the rest of the last checkpoint, for all; nothing where there is none."""
    weights: State = {}
    moments: State = {}

    def read() -> dict[str, Any]:
        assert run is not None, "the first process has the directory"
        last = run.latest()
        unswap(run.folder / BEST)
        if last is None:
            return {}
        _, kept, more, state = read_checkpoint(last)
        if state.get("examples", lesson.digest) != lesson.digest:
            raise UserError(
                f"the examples or {lesson.targets} are not those that {run.folder} was begun with; put the old "
                "files back, or choose another directory"
            )
        weights.update(kept)
        moments.update(more)
        return state

    state = processes.on_lead(read)
    return processes.share_tensors(weights), processes.share_tensors(moments), state
