"""What a device can do at best, measured now: the rate that training and inference are up against."""

import statistics
import time

import torch


def peak_rate(device: torch.device, precision: torch.dtype, size: int | None = None) -> float:
    """FLOP/s of a large matrix product in this precision, measured now: what training here is up against."""
    cuda = device.type == "cuda"
    size, repeats = (
        (size or 8192, 60) if cuda else (size or 768, 5)
    )  # on a GPU long enough that it cannot outrun its power supply
    a, b = (torch.randn(size, size, device=device).to(precision) for _ in range(2))

    def seconds() -> float:
        if cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            a @ b
        if cuda:
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / repeats

    seconds()
    return 2 * size**3 / statistics.median(seconds() for _ in range(3))
