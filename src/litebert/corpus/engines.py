"""Where blocks are encoded: in this process, on this machine's cores, or on Ray. Results come as they finish."""

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Protocol

from litebert.config import UserError
from litebert.corpus.encode import Encoded, Settings, encode_block
from litebert.files import first_line

Blocks = Iterator[tuple[int, list[str]]]
Results = Iterator[tuple[int, Encoded]]
AHEAD = 2  # blocks in flight for each worker: enough to keep it busy, few enough to bound the memory


class Engine(Protocol):
    def run(self, settings: Settings, blocks: Blocks) -> Results: ...


@dataclass(frozen=True)
class Local:
    """This machine: `workers` processes, or none beside this one."""

    workers: int = 1

    def run(self, settings: Settings, blocks: Blocks) -> Results:
        if self.workers <= 1:
            for number, texts in blocks:
                yield number, encode_block(settings, texts)
            return
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.workers, context, _start, (settings,)) as pool:
            waiting: dict[Future[Encoded], int] = {}
            try:
                for number, texts in blocks:
                    waiting[pool.submit(_encode, texts)] = number
                    if len(waiting) >= AHEAD * self.workers:
                        yield from _finished(waiting)
                while waiting:
                    yield from _finished(waiting)
            except BrokenProcessPool:
                raise UserError(
                    "a worker was killed (out of memory?); run again to go on, with fewer --workers"
                ) from None
            finally:
                for future in waiting:
                    future.cancel()


def _finished(waiting: dict[Future[Encoded], int]) -> Results:
    ready, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for future in ready:
        yield waiting.pop(future), future.result()


_settings: Settings | None = None


def _start(settings: Settings) -> None:
    """In a worker: keep the settings, and leave when the main process is gone, however it went."""
    global _settings
    _settings = settings
    leave_with_parent()


def leave_with_parent() -> None:
    """A worker must not outlive a main process that was killed."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _encode(texts: list[str]) -> Encoded:
    assert _settings is not None
    return encode_block(_settings, texts)


@dataclass(frozen=True)
class Ray:
    """A Ray cluster by its address, or 'local' for one on this machine. litebert must be installed on its machines."""

    address: str

    def run(self, settings: Settings, blocks: Blocks) -> Results:
        try:
            import ray
        except ImportError:
            raise UserError("--ray needs Ray; install it with: pip install 'litebert[ray]'") from None
        try:
            ray.init(None if self.address == "local" else self.address, log_to_driver=False, configure_logging=False)
        except (ConnectionError, ValueError, RuntimeError) as problem:
            raise UserError(f"no Ray cluster at {self.address}: {first_line(problem)}") from None
        try:
            remote: Any = ray.remote(encode_block)
            shared = ray.put(settings)
            most = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
            waiting: dict[Any, int] = {}
            for number, texts in blocks:
                waiting[remote.remote(shared, texts)] = number
                while len(waiting) >= most:
                    yield from _ready(ray, waiting)
            while waiting:
                yield from _ready(ray, waiting)
        finally:
            ray.shutdown()


def _ready(ray: Any, waiting: dict[Any, int]) -> Results:
    (reference, *_), _ = ray.wait(list(waiting), num_returns=1)
    yield waiting.pop(reference), ray.get(reference)
