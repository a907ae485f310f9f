"""Examples -> an endless stream of batches: the same for any number of ranks and workers, from any place on.

A place is (epoch, index): the next example to be seen. A batch takes the next `size` examples, over the end of an epoch
if need be; with several ranks each takes its own slice of the rows, so the ranks together see what one alone would see.
"""

import contextlib
import fcntl
import multiprocessing
import signal
from collections.abc import Callable, Generator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Semaphore
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.config import ExampleConfig, UserError
from litebert.corpus.engines import leave_with_parent
from litebert.corpus.examples import Batch, Examples
from litebert.corpus.shards import Corpus, Part
from litebert.text.tokenizer import Tokenizer


@dataclass(frozen=True, order=True)
class Place:
    """Where in the stream: all that resuming needs."""

    epoch: int = 0
    index: int = 0


@dataclass(frozen=True)
class Stream:
    """What decides the batches, in a form that travels to other processes."""

    folder: str
    config: ExampleConfig
    size: int  # of the whole batch, over all ranks
    seed: int = 0
    part: Part = "train"
    rank: int = 0
    ranks: int = 1

    def __post_init__(self) -> None:
        if self.size < 1 or self.size % self.ranks:
            raise UserError(f"a batch of {self.size} does not divide among {self.ranks} processes")
        if not 0 <= self.rank < self.ranks:
            raise UserError(f"rank {self.rank} is none of 0 to {self.ranks - 1}")

    def examples(self, check: bool = True) -> Examples:
        corpus = Corpus(self.folder, self.part, check)
        return Examples(corpus, Tokenizer.load(Path(self.folder) / "tokenizer"), self.config, self.seed)


def take(examples: Examples, stream: Stream, place: Place) -> tuple[Batch, Place]:
    """This rank's rows of the batch at a place, and the place after it."""
    share = stream.size // stream.ranks
    here, rows = skip(examples, place, stream.rank * share), []
    left = share
    while left:
        count = min(left, len(examples.epoch(here.epoch)) - here.index)
        rows.append(examples.batch(here.epoch, np.arange(here.index, here.index + count)))
        here = skip(examples, here, count)
        left -= count
    return join(rows, examples.pad_id), skip(examples, place, stream.size)


def skip(examples: Examples, place: Place, count: int) -> Place:
    """The place so many examples further on."""
    epoch, index = place.epoch, place.index + count
    while index >= len(examples.epoch(epoch)):
        index -= len(examples.epoch(epoch))
        epoch += 1
    return Place(epoch, index)


def join(batches: list[Batch], pad_id: int) -> Batch:
    """Batches one under the other, padded to the longest."""
    if len(batches) == 1:
        return batches[0]
    width = max(batch.input_ids.shape[1] for batch in batches)
    rows = np.cumsum([0] + [len(batch.lengths) for batch in batches])

    def wide(array: NDArray[np.int32], value: int) -> NDArray[np.int32]:
        return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=value)

    positions = [
        (batch.positions // batch.input_ids.shape[1] + row) * width + batch.positions % batch.input_ids.shape[1]
        for batch, row in zip(batches, rows, strict=False)
    ]
    pairs = [batch.pair_labels for batch in batches if batch.pair_labels is not None]
    return Batch(
        np.concatenate([wide(batch.input_ids, pad_id) for batch in batches]),
        np.concatenate([wide(batch.token_type_ids, 0) for batch in batches]),
        np.concatenate([batch.lengths for batch in batches]),
        np.concatenate(positions),
        np.concatenate([batch.labels for batch in batches]),
        np.concatenate(pairs) if pairs else None,
        np.sum([batch.spans for batch in batches], axis=0),
    )


START = Place()


def as_it_is(batch: Batch) -> Any:
    return batch


def batches(
    stream: Stream,
    place: Place = START,
    workers: int = 0,
    ahead: int = 4,
    make: Callable[[Batch], Any] = as_it_is,
) -> Generator[tuple[Any, Place], None, None]:
    """Batch after batch, each with the place that follows it; `workers` other processes make them ahead of time, and
    into whatever `make` turns them."""
    if workers < 1:
        examples = stream.examples()
        while True:
            batch, place = take(examples, stream, place)
            yield make(batch), place
    stream.examples()  # checked here, once, so that a mistake is this process's own
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    permits = [context.Semaphore(ahead) for _ in range(workers)]
    try:
        for number in range(workers):
            ours, theirs = context.Pipe(duplex=False)
            _widen(ours)
            task = Task(stream, place, number, workers, make)
            process = context.Process(target=_produce, args=(theirs, permits[number], task), daemon=True)
            process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)
        turn = 0
        while True:
            try:
                made, place = pipes[turn].recv()
            except (EOFError, OSError):
                raise UserError("a process that makes batches was killed (out of memory?)") from None
            permits[turn].release()
            yield made, place
            turn = (turn + 1) % workers
    finally:
        for process in processes:
            process.kill()


def _widen(pipe: Connection) -> None:
    """Room for a whole batch, so that neither side waits for the other in the middle of one. Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, 1 << 20)


@dataclass(frozen=True)
class Task:
    """What one of the processes makes: every workers-th batch, starting with the number-th."""

    stream: Stream
    place: Place
    number: int
    workers: int
    make: Callable[[Batch], Any]


def _produce(pipe: Connection, permit: Semaphore, task: Task) -> None:
    for signum in (signal.SIGINT, signal.SIGTERM):  # sent to all of a group, they are for the process that trains:
        signal.signal(signum, signal.SIG_IGN)  # it needs another batch or two, and ends us when it is done
    leave_with_parent()
    stream, place = task.stream, task.place
    examples = stream.examples(check=False)
    while True:
        for turn in range(task.workers):
            if turn == task.number:
                permit.acquire()
                batch, place = take(examples, stream, place)
                pipe.send((task.make(batch), place))
            else:
                place = skip(examples, place, stream.size)
