"""Cells side by side: a process a cell, a cell a device. Whoever is asked to stop passes it on and waits."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from litebert.ablate.once import RESULT, Say, write_json
from litebert.ablate.run import Job, check, finished
from litebert.config import UserError
from litebert.train.stopping import Stopped

TICK = 0.05  # seconds between two looks at the processes
LOG = "log.txt"
Turn = tuple[str, int]
Command = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True)
class Busy:
    """A cell at work."""

    turn: Turn
    process: subprocess.Popen[bytes]
    log: Path


def pick_devices(said: str) -> list[str]:
    """`2`: the first two; `cuda:0,cuda:3` or `0,3`: those; `cpu,cpu`: two processes without one.

    >>> pick_devices("2"), pick_devices("cuda:0,cuda:3"), pick_devices("cpu,cpu")
    (['0', '1'], ['0', '3'], ['cpu', 'cpu'])
    """
    if said.isdigit() and int(said) > 0:
        return [str(number) for number in range(int(said))]
    names = [part.strip().removeprefix("cuda:") for part in said.split(",")]
    if not all(name.isdigit() or name == "cpu" for name in names):
        raise UserError(f"--devices {said!r} is neither how many nor which: 2, or cuda:0,cuda:3")
    return names


def check_devices(devices: Sequence[str]) -> None:
    """A GPU that is not there is a mistake, not a reason to train on the CPU."""
    wanted, there = max((int(name) for name in devices if name != "cpu"), default=-1), torch.cuda.device_count()
    if wanted >= there:
        raise UserError(
            f"--devices asks for GPU {wanted}, counted from 0, and there are {there} here; say cpu,cpu for none"
        )


def seen_by(device: str) -> dict[str, str]:
    """What a process is shown of the devices; numbers count among those that we are shown."""
    if device == "cpu":
        return {"CUDA_VISIBLE_DEVICES": ""}
    ours = os.environ.get("CUDA_VISIBLE_DEVICES")
    return {"CUDA_VISIBLE_DEVICES": ours.split(",")[int(device)] if ours else device}


def run_beside(job: Job, devices: Sequence[str], command: Command, say: Say, asked: Sequence[int]) -> None:
    """Every cell that is not done, as soon as a device is free and what it needs is there."""
    check_devices(devices)
    check(job)
    waiting = [turn for turn in job.turns() if finished(job, *turn) is None]
    busy: dict[int, Busy] = {}  # by the device's place
    passed_on = False
    while busy or (waiting and not asked):
        for place in [place for place, each in busy.items() if each.process.poll() is not None]:
            end(job, busy.pop(place), say)
        if asked and not passed_on:
            passed_on = True
            for each in busy.values():
                each.process.send_signal(signal.SIGTERM)
        for place in range(len(devices)):
            turn = None if asked or place in busy else next_turn(job, waiting, busy)
            if turn is not None:
                waiting.remove(turn)
                busy[place] = begin(job, turn, devices[place], command)
                say({"kind": "note", "text": f"cell {turn[0]}, seed {turn[1]} on {devices[place]}"})
        time.sleep(TICK)
    if asked:
        raise Stopped(0, asked[-1])


def next_turn(job: Job, waiting: Sequence[Turn], busy: dict[int, Busy]) -> Turn | None:
    """The first that need not wait for another: a cell whose needed one failed begins too, and says so in its row."""
    ahead = {*waiting, *(each.turn for each in busy.values())}
    for name, seed in waiting:
        if not any((other, seed) in ahead for other in job.planned(name).cell.needs):
            return name, seed
    return None


def begin(job: Job, turn: Turn, device: str, command: Command) -> Busy:
    """In a session of its own, so that Ctrl-C in a terminal reaches it once, through us."""
    folder = job.folder(*turn)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOG, "ab") as log:
        process = subprocess.Popen(
            command(*turn),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=os.environ | seen_by(device),
            start_new_session=True,
        )
    return Busy(turn, process, folder / LOG)


def end(job: Job, done: Busy, say: Say) -> None:
    """A process that left no result, unless it was stopped, is a cell that failed."""
    (name, seed), code = done.turn, done.process.returncode
    if code == 0 or code in (128 + signal.SIGTERM, 128 + signal.SIGINT):
        say({"kind": "note", "text": f"cell {name}, seed {seed}: {'done' if code == 0 else 'stopped'}"})
        return
    lines = done.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    failed = f"its process was killed by signal {-code}" if code < 0 else (lines or ["it said nothing"])[-1]
    write_json(job.folder(name, seed) / RESULT, {"cell": name, "seed": seed, "figures": {}, "failed": failed})
    say({"kind": "note", "text": f"cell {name}, seed {seed} failed: {failed}"})
