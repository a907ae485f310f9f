"""`litebert bench memory`: the estimate behind `litebert info --fit` beside what a GPU really allocates.

At each (model, length) the batch that `--fit` prints is trained for three steps; the peak of the last one counts.
"""

import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from litebert.config import UserError, preset
from litebert.model.cost import PRETRAINING
from litebert.model.heads import Network
from litebert.model.memory import MASKED, largest_batch, step_memory
from litebert.model.weights import build

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
        peak = _peak(build(config, PRETRAINING), batch, length)
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


def _peak(network: Network, batch: int, length: int) -> int:
    gc.collect()
    torch.cuda.empty_cache()
    network.cuda().train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)
    pieces = batch * length
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        ids = torch.randint(5, network.config.vocab_size, (batch, length), device="cuda")
        positions = torch.randperm(pieces, device="cuda")[: round(MASKED * pieces)].sort().values
        labels = ids.flatten()[positions]
        swapped = torch.randint(2, (batch,), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = network(ids, token_type_ids=torch.zeros_like(ids), positions=positions)
            loss = F.cross_entropy(logits["mlm"], labels) + F.cross_entropy(logits["pair"], swapped)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    peak = torch.cuda.max_memory_allocated()
    network.cpu()
    return peak
