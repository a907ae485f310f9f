"""A run in one of several processes."""

import os
from pathlib import Path

import torch

from litebert.recipe import load_recipe
from litebert.train.pretrain import pretrain
from litebert.train.processes import joined
from tests.forked import speak_into


def work(recipe: str, folder: str, *more: str) -> None:
    torch.set_num_threads(1)
    with joined("cpu") as processes:
        pretrain(load_recipe(recipe), Path(folder), "--resume" in more, processes, lambda _: None)


def forked(environment: dict[str, str], told: str, *words: str) -> None:
    """What it says goes to a file."""
    os.environ.update(environment)
    speak_into(Path(told), 2)
    work(*words)
