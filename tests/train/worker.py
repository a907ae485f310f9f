"""A run in one of several processes."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from litebert.cli import main
from litebert.corpus.shards import read_manifest
from litebert.infer.model import Model
from litebert.recipe import TuneRecipe, load_recipe
from litebert.train import finetune, heldout, seat
from litebert.train import pretrain as training
from litebert.train.lesson import Lesson
from litebert.train.pretrain import pretrain
from litebert.train.processes import joined
from litebert.train.stopping import Stopped
from tests.forked import speak_into


def work(recipe: str, folder: str, *more: str) -> None:
    torch.set_num_threads(1)
    with joined("cpu") as processes:
        if "--asked-in-last-look" in more and processes.rank == 1:
            count = heldout.count
            heldout.count = lambda *args: os.kill(os.getpid(), signal.SIGTERM) or count(*args)
        try:
            pretrain(load_recipe(recipe), Path(folder), "--resume" in more, processes, lambda _: None)
        except Stopped:
            assert "--asked-in-last-look" in more


def forked(environment: dict[str, str], told: str, *words: str) -> None:
    """What it says goes to a file."""
    os.environ.update(environment)
    speak_into(Path(told), 2)
    work(*words)


def command(environment: dict[str, str], told: str, *words: str) -> None:
    """`litebert WORDS…`."""
    os.environ.update(environment)
    speak_into(Path(told), 2)
    torch.set_num_threads(1)
    sys.argv = ["litebert", *words]
    main()


def one_has_other_examples(environment: dict[str, str], told: str, file: str, *words: str) -> None:
    """The same, but by the name of the training file the second process finds another one on its machine."""
    real = seat.read_lesson

    def elsewhere(recipe: TuneRecipe, model: Model) -> Lesson:
        return real(replace(recipe, task=replace(recipe.task, train=file)), model)

    if environment["RANK"] == "1":
        seat.read_lesson = elsewhere
    command(environment, told, *words)


def one_is_asked_to_stop(environment: dict[str, str], told: str, step: str, *words: str) -> None:
    """The same; while the second process makes that step of fine-tuning it gets a signal, and no other does."""
    count, real = iter(range(1, 1000)), finetune.one_step

    def signalled(*given: Any) -> Any:
        if next(count) == int(step):
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*given)

    if environment["RANK"] == "1":
        finetune.one_step = signalled
    command(environment, told, *words)


def one_fails(environment: dict[str, str], told: str, how: str, *words: str) -> None:
    """The same, but the second process finds no shards on its machine, or has a bug."""

    def fails(*_: object) -> None:
        read_manifest(Path("nowhere"))

    def breaks(*_: object) -> None:
        raise RuntimeError("a bug")

    if environment["RANK"] == "1":
        training.prepare = {"lacks": fails, "breaks": breaks}[how]
    command(environment, told, *words)
