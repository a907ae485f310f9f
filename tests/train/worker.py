"""A run in one of several processes: by `torchrun`, or in a process that was forked where all of this is imported."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed.fsdp  # so that whoever is forked here has it

from litebert.recipe import load_recipe
from litebert.train.pretrain import pretrain
from litebert.train.processes import joined


def work(recipe: str, folder: str, *more: str) -> None:
    torch.set_num_threads(1)
    with joined("cpu") as processes:
        pretrain(load_recipe(recipe), Path(folder), "--resume" in more, processes, lambda _: None)


def forked(environment: dict[str, str], told: str, *words: str) -> None:
    """What it says goes to a file."""
    os.environ.update(environment)
    with open(told, "w") as file:
        os.dup2(file.fileno(), 2)
    work(*words)


if __name__ == "__main__":
    work(*sys.argv[1:])
