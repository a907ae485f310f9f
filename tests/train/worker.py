"""Run by `torchrun` in the tests: a run, or a gradient, in one of several processes."""

import sys
from pathlib import Path

import torch

from litebert.recipe import load_recipe
from litebert.train.pretrain import pretrain
from litebert.train.processes import joined

if __name__ == "__main__":
    torch.set_num_threads(1)
    with joined("cpu") as processes:
        pretrain(load_recipe(sys.argv[1]), Path(sys.argv[2]), "--resume" in sys.argv, processes, lambda _: None)
