"""`litebert bench memory`: the estimate behind `litebert info --fit` beside what a GPU really allocates.

At each (model, length) the batch that `--fit` prints is trained for three steps; the peak of the last one counts.
"""

import gc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.attention import sdpa_kernel

from litebert.config import ModelConfig, UserError, preset
from litebert.corpus.examples import Batch
from litebert.corpus.pack import pack
from litebert.model.memory import MASKED, largest_batch, step_memory
from litebert.model.weights import build
from litebert.recipe import DataConfig, OptimizerConfig, RunConfig
from litebert.train.feed import Micro, to_micro
from litebert.train.objective import pretraining_heads
from litebert.train.pretrain import KERNELS
from litebert.train.processes import Processes
from litebert.train.steps import one_step
from litebert.train.trainee import Snapshot, assemble

POINTS = (
    ("albert-base", 128),
    ("albert-base-v1", 512),
    ("albert-xxlarge", 512),
    ("bert-base", 128),
    ("bert-large", 128),
    ("bert-large", 512),
)


def bench_memory(
    budget: int, points: Sequence[tuple[str, int]] = POINTS, say: Callable[[str], object] = lambda _: None
) -> dict[str, Any]:
    if not torch.cuda.is_available():
        raise UserError("bench memory measures a CUDA device and there is none here")
    rows = []
    for name, length in points:
        config = preset(name)
        batch = largest_batch(config, length, budget)
        say(f"{name}, length {length}, batch {batch}")
        estimate = step_memory(config, batch, length).total
        peak = _peak(config, batch, length)
        rows.append(
            {
                "model": name,
                "length": length,
                "batch": batch,
                "estimate_bytes": estimate,
                "peak_bytes": peak,
                "ratio": peak / estimate,
            }
        )
    free, whole = torch.cuda.mem_get_info()
    outside = whole - free - torch.cuda.memory_reserved()
    return {
        "bench": "memory",
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "budget_bytes": budget,
        "outside_allocator_bytes": outside,
        "rows": rows,
    }


def _peak(config: ModelConfig, batch: int, length: int) -> int:
    """Of a step of training on full examples of random pieces."""
    gc.collect()
    torch.cuda.empty_cache()
    device = torch.device("cuda")
    heads = pretraining_heads(config, DataConfig())
    start = Snapshot(config, heads, dict(build(config, heads).state_dict()), {}, 0)
    trainee = assemble(start, OptimizerConfig(), RunConfig(), Processes(device))
    rng, masked = np.random.default_rng(0), round(MASKED * batch * length)

    def loss(micro: Micro) -> tuple[torch.Tensor, torch.Tensor]:
        sums = trainee.model(micro).sums()
        return sums[0] / masked + sums[2] / batch, sums

    with sdpa_kernel(KERNELS, set_priority=True):
        for _ in range(3):
            ids = rng.integers(5, config.vocab_size, (batch, length), dtype=np.int32)
            positions = np.sort(rng.choice(batch * length, masked, replace=False))
            made = Batch(
                ids,
                np.zeros_like(ids),
                np.full(batch, length),
                positions,
                ids.ravel()[positions],
                rng.integers(0, 2, batch),
                np.zeros(1, dtype=np.int64),
            )
            micro = to_micro(pack(made, length, config.pad_id, True), device)
            torch.cuda.reset_peak_memory_stats()
            one_step([micro], trainee.model, trainee.optimizer, loss, 1.0)
    return torch.cuda.max_memory_allocated()
