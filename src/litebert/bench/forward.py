"""`litebert bench forward`: the CPU forward pass of one model, ours and `transformers`', same weights, same inputs.

Both run float32, inference mode and PyTorch's fused attention. Full batches carry no mask on either side. The ragged
batch is padded with a mask for the peer, as its documentation says, and packed into one row for us.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from litebert.bench.peer import transformers
from litebert.bench.timing import interleaved, machine
from litebert.config import UserError, preset
from litebert.model.cost import flops_per_piece
from litebert.model.packing import pack
from litebert.model.weights import build, export_network
from litebert.train.peak import peak_rate

Work = Callable[[], Tensor]

SHAPES = ((1, 16), (1, 128), (8, 128))
RAGGED = (32, 8, 128)


def bench_forward(
    name: str = "albert-base", repeats: int = 15, seed: int = 0, say: Callable[[str], object] = lambda _: None
) -> dict[str, Any]:
    """Milliseconds of both sides, their ratio and the largest difference between their answers, a row a shape."""
    config = preset(name)
    if config.positions < RAGGED[2]:
        raise UserError(f"{name} has {config.positions} positions and this bench needs {RAGGED[2]}")
    network = build(config, seed=seed).eval()
    theirs, version = _peer(network)
    generator = torch.Generator().manual_seed(seed)
    rows = []
    with torch.inference_mode():
        for batch, length in SHAPES:
            ids = torch.randint(5, config.vocab_size, (batch, length), generator=generator)
            say(f"({batch}, {length})")
            work = _sides(partial(theirs, ids, None), partial(network.encoder, ids))
            rows.append(_row(f"({batch}, {length})", work, repeats, batch * length * flops_per_piece(config, length)))
        batch, shortest, longest = RAGGED
        lengths = torch.randint(shortest, longest + 1, (batch, 1), generator=generator)
        mask = (torch.arange(int(lengths.max())) < lengths).long()
        ids = torch.randint(5, config.vocab_size, mask.shape, generator=generator) * mask + config.pad_id * (1 - mask)
        say(f"ragged ({batch}, {shortest} to {longest})")

        def ours() -> Tensor:  # packing is part of the work
            row, boundaries = pack(ids, mask)
            states: Tensor = network.encoder(row, boundaries=boundaries)
            return states

        work = _sides(partial(theirs, ids, mask), ours)
        flops = sum(n * flops_per_piece(config, n) for n in mask.sum(1).tolist())
        shape = f"ragged ({batch}, {shortest} to {longest})"
        rows.append(_row(shape, work, max(3, repeats // 3), flops, mask.bool()))
        rate = peak_rate(torch.device("cpu"), torch.float32, size=1536)
    return {
        "bench": "forward",
        "model": name,
        "peer": f"transformers {version}",
        "matmul_gflops": rate / 1e9,
        "repeats": repeats,
        "rows": rows,
    } | machine()


def _peer(network: Any) -> tuple[Callable[[Tensor, Tensor | None], Tensor], str]:
    library = transformers()
    library.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        export_network(network, Path(folder))
        model = library.AutoModel.from_pretrained(folder, attn_implementation="sdpa").eval()
    model.pooler = None  # neither side pools
    return lambda ids, mask: model(input_ids=ids, attention_mask=mask).last_hidden_state, library.__version__


def _sides(theirs: Work, ours: Work) -> dict[str, Work]:
    return {"transformers": theirs, "litebert": ours}


def _row(shape: str, work: dict[str, Work], repeats: int, flops: int, real: Tensor | None = None) -> dict[str, Any]:
    answers = {name: run() for name, run in work.items()}
    theirs = answers["transformers"] if real is None else answers["transformers"][real]
    difference = (answers["litebert"] - theirs).abs().max().item()
    seconds = interleaved(work, repeats)
    return {
        "shape": shape,
        "transformers_ms": 1e3 * seconds["transformers"],
        "litebert_ms": 1e3 * seconds["litebert"],
        "ratio": seconds["litebert"] / seconds["transformers"],
        "litebert_gflops": flops / seconds["litebert"] / 1e9,
        "largest_difference": difference,
    }
