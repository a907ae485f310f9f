"""Functions to compare -> the median seconds of each, measured in turns so that a noisy machine is noisy for all."""

import os
import statistics
import time
from collections.abc import Callable, Mapping

import torch


def interleaved(work: Mapping[str, Callable[[], object]], repeats: int, warm_up: int = 2) -> dict[str, float]:
    """Each function once a round; the order turns round, so none always runs after the same neighbour."""
    for function in list(work.values()) * warm_up:
        function()
    seconds: dict[str, list[float]] = {name: [] for name in work}
    names = list(work)
    for turn in range(repeats):
        for name in names if turn % 2 == 0 else reversed(names):
            start = time.perf_counter()
            work[name]()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def machine() -> dict[str, object]:
    return {"torch": torch.__version__, "threads": torch.get_num_threads(), "cpus": os.cpu_count()}
