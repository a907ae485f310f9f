"""Fine-tuning steps -> the figures of a line. Sums stay on the device until one is due."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from litebert.train.processes import Processes
from litebert.train.steps import Done, Skips

SILENCE = 10.0  # seconds after which somebody who watches is told how it stands, between two lines


class Tally:
    """What has been counted since the last line, and a clock that stands still while nothing is learned."""

    def __init__(self, processes: Processes, saved: Mapping[str, list[float]]) -> None:
        self.processes, device = processes, processes.device
        loss, *same = saved.get("sums", [0.0] * 4)  # the loss is each process's own, the rest is the same in all
        self.sums = torch.tensor([loss if processes.lead else 0.0, *same], dtype=torch.float64, device=device)
        self.skips = Skips(device, saved.get("skips", [0.0] * 3))
        self.here = 0  # steps of this process: a run that goes on does not know how long those before took
        self.since = self.told = time.perf_counter()

    def add(self, done: Done) -> None:
        row = torch.stack([done.figures[0], done.norm, done.taken]).double()
        self.sums[:3] += torch.where(done.taken > 0, row, 0.0)
        self.sums[3] += 1
        self.skips.add(done.taken)
        self.here += 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.since += time.perf_counter() - begun

    def silent(self) -> bool:
        """Whether somebody who watches has heard nothing for long. Of several processes each has its own clock, so
        they do not ask it."""
        return self.processes.ranks == 1 and time.perf_counter() - self.told > SILENCE

    def added(self) -> list[float]:
        """The sums over all processes."""
        loss, *same = self.sums.tolist()
        return [*self.processes.total(loss), *same]

    def line(self, step: int, steps: int, batch: int, anew: bool = True) -> dict[str, Any]:
        """The figures; `anew`: and then they begin anew."""
        loss, norm, taken, _ = self.added()
        now = self.told = time.perf_counter()
        seconds = now - self.since
        found = {
            "loss": loss / taken if taken else None,  # of what was learned from
            "norm": norm / taken if taken else None,
            "skipped": int(self.skips.counts[0]),
            "time": {
                "seconds": seconds,
                "examples_per_second": self.here * batch / max(seconds, 1e-9),
                "seconds_left": (steps - step) * seconds / max(1, self.here),
            },
        }
        if anew:
            self.sums.zero_()
            self.here, self.since = 0, now
        return found

    def saved(self) -> dict[str, list[float]]:
        """What resuming needs to write the same lines."""
        return {"sums": self.added(), "skips": self.skips.counts.tolist()}
