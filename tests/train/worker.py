"""A run in one of several processes."""

import os
import signal
from pathlib import Path

import torch

from litebert.recipe import load_recipe
from litebert.train import heldout
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
