"""`litebert demo`: the family built, counted and checked, with nothing but this package."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from litebert.config import PRESETS, HeadConfig, UserError, load_recipe
from litebert.infer.model import Model, load
from litebert.model.packing import pack
from litebert.model.published import unshare
from litebert.model.weights import build, fill


def run_demo(say: Callable[[str], object]) -> dict[str, float]:
    """Largest differences between what must be equal; raises if any is more than rounding."""
    config = load_recipe("cpu-demo").model
    network = build(config, [HeadConfig(kind="mlm"), HeadConfig(kind="pair")], seed=0).eval()
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, config.vocab_size, (8, 64), generator=generator)
    mask = (torch.arange(64) < torch.randint(8, 65, (8, 1), generator=generator)).long()
    real = mask.bool()
    found: dict[str, float] = {}
    with torch.inference_mode():
        padded = network.encoder(ids, mask)
        say(f"a forward pass of 8 ragged sequences, {int(mask.sum())} pieces: states {tuple(padded.shape)}")
        row, boundaries = pack(ids, mask)
        packed = network.encoder(row, boundaries=boundaries)
        found["unpadded and padded"] = _gap(packed, padded[real])
        wide, state = unshare(config, dict(network.state_dict()))
        copies = fill(wide, network.head_configs, state, "the unshared copy").encoder(ids, mask)
        found["one shared layer and twelve copies" if config.layers == 12 else "a shared layer and its copies"] = _gap(
            copies[real], padded[real]
        )
        deeper = (
            build(replace(config, layers=2 * config.layers), network.head_configs, seed=0).eval().encoder(ids, mask)
        )
        found["twice the passes and twice the layers"] = _gap(
            network.encoder(ids, mask, passes=2 * config.layers)[real], deeper[real]
        )
        with tempfile.TemporaryDirectory() as folder:
            Model(network=network).save(Path(folder))
            found["saved and loaded"] = _gap(load(folder).encoder(ids, mask)[real], padded[real])
    for what, gap in found.items():
        say(f"{what}: largest difference {gap:.1e}")
    if max(found.values()) > 1e-5:
        raise UserError("two answers that must be equal are not; please report this with your torch version")
    return found


def _gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a - b).abs().max().item()


FAMILY = tuple(name for name in PRESETS if not name.endswith(("-v1", "-v2")))
