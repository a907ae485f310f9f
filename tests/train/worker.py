"""A run in one of several processes."""

import os
import signal
import sys
from pathlib import Path

import torch

from litebert.cli import main
from litebert.corpus.shards import read_manifest
from litebert.recipe import load_recipe
from litebert.train import heldout
from litebert.train import pretrain as training
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


def one_fails(environment: dict[str, str], told: str, how: str, *words: str) -> None:
    """`litebert WORDS…`, whose second process finds no shards on its machine, or has a bug."""
    os.environ.update(environment)
    speak_into(Path(told), 2)
    torch.set_num_threads(1)

    def fails(*_: object) -> None:
        read_manifest(Path("nowhere"))

    def breaks(*_: object) -> None:
        raise RuntimeError("a bug")

    if environment["RANK"] == "1":
        training.prepare = {"lacks": fails, "breaks": breaks}[how]
    sys.argv = ["litebert", *words]
    main()
