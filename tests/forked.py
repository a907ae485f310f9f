"""Processes that are forked from one that has imported everything.

To import PyTorch and the rest takes seconds, and the suite starts hundreds of processes.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path

import torch
import torch.distributed.fsdp

from litebert.cli import main


def context() -> ForkServerContext:
    """Where such processes come from."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload([__name__])
    return found


def run(words: Sequence[str], cwd: Path) -> "subprocess.CompletedProcess[str]":
    """`litebert WORDS…` in a folder, as `subprocess.run` would with its output captured."""
    with tempfile.TemporaryDirectory() as told:
        process = context().Process(target=command, args=(list(words), str(cwd), told))
        process.start()
        process.join()
        out, err = (Path(told, name).read_text() for name in ("out", "err"))
    assert process.exitcode is not None
    return subprocess.CompletedProcess(list(words), process.exitcode, out, err)


def command(words: list[str], cwd: str, told: str) -> None:
    os.chdir(cwd)
    speak_into(Path(told, "out"), 1)
    speak_into(Path(told, "err"), 2)
    torch.set_num_threads(1)
    sys.argv = ["litebert", *words]
    main()


def speak_into(file: Path, stream: int) -> None:
    with open(file, "w") as handle:
        os.dup2(handle.fileno(), stream)
