"""SIGTERM and Ctrl-C -> a stop at a moment when everything is saved."""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType


class Stopped(Exception):  # noqa: N818  not an error: it was asked for
    """Asked to stop by a signal, and everything saved."""

    def __init__(self, step: int, signum: int) -> None:
        super().__init__(f"stopped at step {step}; all of it is saved")
        self.step, self.signum = step, signum


class Asked(list[int]):
    """The signals that ask to stop, as they arrive. Whoever waits for them around this one hears of them too."""

    def __init__(self) -> None:
        super().__init__()
        self.before = {int(signum): signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)}

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        self.append(signum)
        outer = self.before[signum]
        if isinstance(outer, Asked):
            outer(signum, frame)
        else:
            signal.signal(signum, outer)


@contextmanager
def signals() -> Iterator[Asked]:
    """SIGTERM and Ctrl-C ask to stop where all is saved, after a step or in the last look; a second one ends the
    process at once."""
    asked = Asked()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    for signum in asked.before:
        signal.signal(signum, asked)
    try:
        yield asked
    finally:
        for signum, handler in asked.before.items():
            if signum not in asked:
                signal.signal(signum, handler)


def signal_of(asked: Sequence[int], together: float) -> int:
    """The signal to stop by, or 0, when all processes together were asked so often, and this one so."""
    return (asked[-1] if asked else int(signal.SIGTERM)) if together else 0
