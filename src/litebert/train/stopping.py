"""SIGTERM and Ctrl-C -> a stop at a moment when everything is saved."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Stopped(Exception):  # noqa: N818  not an error: it was asked for
    """Asked to stop by a signal, and everything saved."""

    def __init__(self, step: int, signum: int) -> None:
        super().__init__(f"stopped at step {step}; all of it is saved")
        self.step, self.signum = step, signum


@contextmanager
def signals() -> Iterator[list[int]]:
    """SIGTERM and Ctrl-C ask the loop to stop after its step; a second one ends the process at once."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(signum: int, _: object) -> None:
        asked.append(signum)
        signal.signal(signum, before[signum])

    before = {int(signum): signal.signal(signum, ask) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
