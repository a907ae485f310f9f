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


class Started:
    """`litebert WORDS…` in a folder, at work; to be watched, asked to stop and killed."""

    def __init__(self, words: Sequence[str], cwd: Path) -> None:
        self.told = tempfile.TemporaryDirectory()
        self.process = context().Process(target=command, args=(list(words), str(cwd), self.told.name))
        self.process.start()

    def said(self, stream: str = "err") -> str:
        file = Path(self.told.name, stream)
        return file.read_text() if file.exists() else ""

    def at_work(self) -> bool:
        return self.process.exitcode is None

    def send(self, signum: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signum)

    def wait(self, seconds: float | None = None) -> int:
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"still at work after {seconds} s"
        return self.process.exitcode


def run(words: Sequence[str], cwd: Path) -> "subprocess.CompletedProcess[str]":
    """As `subprocess.run` would with its output captured."""
    started = Started(words, cwd)
    return subprocess.CompletedProcess(list(words), started.wait(), started.said("out"), started.said())


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
