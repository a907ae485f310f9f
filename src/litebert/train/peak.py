"""What a device can do at best, measured now: the rate that training and inference are up against."""

import statistics
import time
from functools import cache

import torch

SMALL = 192  # rows of a matrix that a CPU is tried on
LARGE = 768  # and, unless that is slow, measured on
REPEATS = 5
LONGEST = 3.0  # seconds that a measurement may take, as far as the first try tells


def peak_rate(device: torch.device, precision: torch.dtype, size: int | None = None) -> float:
    """FLOP/s of a large matrix product in this precision, measured now: what training here is up against."""
    if device.type == "cuda":  # long enough that it cannot outrun its power supply
        return product_rate(device, precision, size or 8192, 60)
    if size is None:
        tried = product_rate(device, precision, SMALL, 1)
        if 4 * REPEATS * 2 * LARGE**3 / tried > LONGEST:  # some CPUs have no way with bf16
            return tried
    return product_rate(device, precision, size or LARGE, REPEATS)


def product_rate(device: torch.device, precision: torch.dtype, size: int, repeats: int) -> float:
    """The median of three, after a first one that does not count."""
    a, b = (torch.randn(size, size, device=device).to(precision) for _ in range(2))

    def seconds() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            a @ b
        if device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / repeats

    seconds()
    return 2 * size**3 / statistics.median(seconds() for _ in range(3))


@cache
def known_peak(device: torch.device, precision: torch.dtype) -> float:
    """The same, measured once in this process: for what is told along the way."""
    return peak_rate(device, precision)
