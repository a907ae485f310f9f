"""A `Model` -> a folder with `model.onnx`, its tokenizer, `about.json` and `run.py`, which needs litebert no more.

The file is checked against PyTorch when it is written, on batches and lengths that nothing in it was made for.
"""

import json
from dataclasses import dataclass
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

import numpy as np
import torch

from litebert.config import Reading, UserError
from litebert.export.onnx import write_network
from litebert.files import replace_file
from litebert.infer.batch import restated
from litebert.infer.first import ends_of
from litebert.infer.loop import open_session, runtime
from litebert.infer.model import Model
from litebert.model.heads import Network
from litebert.tasks.taught import suited

CLOSE = 1e-4  # what float32 may differ
SHAPES = ((1, 5), (3, 17), (2, 48))  # batches and lengths that are tried


@dataclass(frozen=True)
class Written:
    folder: str
    bytes: int
    difference: float  # the largest of any output; of a number, in its deviations
    passes: bool  # an input


def export_onnx(model: Model, folder: str | Path, int8: bool = False, passes: bool | None = None) -> Written:
    """`passes`: whether they are an input; if not said, wherever one layer is all there is."""
    runtime()
    folder, network, unit = Path(folder), model.network.eval(), 1.0
    if model.taught is not None:
        task = model.taught.task
        network, unit = restated(network, task), task.scale + abs(task.mean) / 1000  # float32 has seven digits of it
    chosen = network.config.one_layer if passes is None else passes
    written = write_network(network, chosen, int8, ends_of(model.tokenizer))
    session = open_session(written)
    difference = max(compare(network, session, shape, seed, unit) for seed, shape in enumerate(SHAPES))
    if not int8 and not difference <= CLOSE:
        raise UserError(
            f"the ONNX file differs from PyTorch by {difference:.2g} (allowed: {CLOSE:g}); nothing was written"
        )
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "model.onnx", written)
    replace_file(folder / "about.json", (json.dumps(about(model), indent=1, ensure_ascii=False) + "\n").encode())
    if model.tokenizer is not None:
        model.tokenizer.save(folder)
        replace_file(folder / "run.py", (resources("litebert.export") / "run.py").read_bytes())
    return Written(str(folder), len(written), difference, chosen)


def about(model: Model) -> dict[str, Any]:
    """What `run.py` must know."""
    config, tokenizer, taught = model.config, model.tokenizer, model.taught
    reading = suited(taught.task, taught.reading, config.positions).reading if taught else Reading()
    return {
        "heads": {head.kind: list(head.labels) for head in model.network.head_configs},
        "several": any(head.several for head in model.network.head_configs),
        "length": reading.length or config.positions,
        "answer_length": reading.answer_length,
        "threshold": taught.task.threshold if taught else 0.0,
        "pad_id": config.pad_id,
        "special": sorted(tokenizer.special_ids) if tokenizer is not None else [],
        "mask": tokenizer.piece(tokenizer.mask_id) if tokenizer is not None else None,
        "passes": config.layers,
    }


@torch.no_grad()
def compare(network: Network, session: Any, shape: tuple[int, int], seed: int, unit: float = 1.0) -> float:
    """The largest difference between the session and the network on random pieces, the last of them padding. `unit`:
    what a difference of numbers is measured by."""
    config, rng = network.config, np.random.default_rng(seed)
    width = min(shape[1], config.positions)
    lengths = rng.integers(1, width + 1, shape[0])
    lengths[0] = width
    real = np.arange(width) < lengths[:, None]
    ids = np.where(real, rng.integers(config.pad_id + 1, config.vocab_size, (shape[0], width)), config.pad_id)
    types = rng.integers(0, max(1, config.token_types), ids.shape) * real
    given = {"input_ids": ids, "attention_mask": real.astype(np.int64), "token_type_ids": types}
    given |= {"passes": np.array(config.layers), "allowed": real.astype(np.int64)}
    wanted = {each.name for each in session.get_inputs()}
    names = [each.name for each in session.get_outputs()]
    found = session.run(names, {name: value for name, value in given.items() if name in wanted})
    true = answers(
        network, *(torch.from_numpy(given[name]) for name in ("input_ids", "attention_mask", "token_type_ids"))
    )
    worst = 0.0
    for name, ours in zip(names, found, strict=True):
        theirs = true[name].numpy()
        apart = np.abs(theirs.astype(np.float64) - ours)
        counts = np.ones(1, dtype=bool)
        if name in ("mlm", "tag", "span", "states"):
            counts = real[..., None]  # padding says nothing
        elif name in ("start", "end"):  # nor do places that are not allowed
            counts = np.abs(theirs) < 1e30
            counts &= np.abs(true["start"].numpy())[..., None] < 1e30 if name == "end" else True
        elif name.endswith("_at"):  # of two that are as likely either may come first
            continue
        worst = max(worst, float(np.where(counts, apart, 0.0).max()) / (unit if name == "regress" else 1.0))
    return worst


def answers(network: Network, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> dict[str, torch.Tensor]:
    """What the network says, by the names of the graph's outputs."""
    given = ids, mask, types if network.config.token_types else None
    if not network.heads:
        return {"states": network.encoder(*given)}
    found: dict[str, torch.Tensor] = network(*given, allowed=mask, start_at=torch.zeros_like(ids[:, 0]))
    if "span-beam" in network.heads:  # what answers, where the network gives what trains
        beam = network.heads["span-beam"].beam(network.encoder(*given), mask.bool())  # type: ignore[operator]
        found |= vars(beam)
    return found
