"""Requests -> batches -> answers: one thread that asks the models, and a queue before it.

A batch is the oldest request and those of its group (same model, question and options) that are nearest to it in
length, up to a budget of pieces. The oldest always goes, so none waits for ever. A request that finds the thread idle
waits a few milliseconds for others; under load nobody waits for that.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from litebert.config import UserError
from litebert.files import first_line

log = logging.getLogger("litebert.serve")


@dataclass(frozen=True)
class Done:
    """What became of a request."""

    answers: list[str]  # JSON, one an item
    seconds: float  # that the model took, for all that went with it


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """A request on its way to the model."""

    group: Hashable  # jobs of one group can go through together
    items: Sequence[Any]
    pieces: int  # about
    arrived: float = field(default_factory=time.monotonic)
    future: "Future[Done]" = field(default_factory=Future)

    @property
    def length(self) -> float:
        return self.pieces / len(self.items)


class Failed(Exception):  # noqa: N818
    """The model could not answer, and it was not the request's fault."""


class Batcher:
    """The thread and its queue."""

    def __init__(
        self,
        run: Callable[[Any, list[Any]], list[str]],  # a group and its items -> an answer each
        pieces: int,
        wait: float,  # seconds
        saw: Callable[[int, float], object] = lambda items, seconds: None,  # hears of every batch
    ) -> None:
        self.run, self.pieces, self.wait, self.saw = run, pieces, wait, saw
        self.waiting: list[Job] = []
        self.stopping = False
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self._work, name="litebert-model", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def submit(self, job: Job) -> "Future[Done]":
        with self.changed:
            self.waiting.append(job)
            self.changed.notify()
        return job.future

    def stop(self) -> None:
        """After what is in the queue."""
        with self.changed:
            self.stopping = True
            self.changed.notify()
        self.thread.join()

    def _work(self) -> None:
        while jobs := self._next():
            ready = [job for job in jobs if job.future.set_running_or_notify_cancel()]  # else its client has gone
            if ready:
                self._answer(ready)

    def _next(self) -> list[Job]:
        """The jobs of the next batch; none: it is time to stop."""
        with self.changed:
            while not self.waiting:
                if self.stopping:
                    return []
                self.changed.wait()
            until = self.waiting[0].arrived + self.wait
            while not self.stopping and (left := until - time.monotonic()) > 0:
                if sum(job.pieces for job in self.waiting if job.group == self.waiting[0].group) >= self.pieces:
                    break
                self.changed.wait(left)
            chosen = together(self.waiting, self.pieces)
            gone = set(map(id, chosen))
            self.waiting = [job for job in self.waiting if id(job) not in gone]
            return chosen

    def _answer(self, jobs: Sequence[Job]) -> None:
        start = time.perf_counter()
        try:
            items = [item for job in jobs for item in job.items]
            answers = iter(self.run(jobs[0].group, items))
        except BaseException as problem:  # noqa: BLE001 - a tokenizer may even panic; the thread goes on
            if len(jobs) == 1:
                jobs[0].future.set_exception(_told(problem))
                return
            for job in jobs:  # whose fault it was shows when each goes alone
                self._answer([job])
            return
        seconds = time.perf_counter() - start
        self.saw(len(items), seconds)
        for job in jobs:
            job.future.set_result(Done([next(answers) for _ in job.items], seconds))


def _told(problem: BaseException) -> Exception:
    if isinstance(problem, UserError):
        return problem
    log.error("a request could not be answered", exc_info=problem)
    return Failed(f"the model could not answer: {first_line(problem)}")


def together(waiting: Sequence[Job], pieces: int) -> list[Job]:
    """The oldest job and its nearest in length, as many as the budget takes.

    >>> jobs = [Job(group="a", items="x", pieces=size) for size in (50, 9, 48, 90, 51)]
    >>> [job.pieces for job in together([*jobs, Job(group="b", items="x", pieces=50)], 150)]
    [48, 50, 51]
    """
    oldest = waiting[0]
    alike = sorted((job for job in waiting if job.group == oldest.group), key=lambda job: job.length)
    low = high = next(at for at, job in enumerate(alike) if job is oldest)
    total = oldest.pieces
    while True:
        sides = [at for at in (low - 1, high + 1) if 0 <= at < len(alike)]
        if not sides:
            break
        nearest = min(sides, key=lambda at: abs(alike[at].length - oldest.length))
        total += alike[nearest].pieces
        if total > pieces:
            break
        low, high = min(low, nearest), max(high, nearest)
    return alike[low : high + 1]
