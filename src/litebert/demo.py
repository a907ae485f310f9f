"""`litebert demo`: from the novels that ship with the package to masked batches, through a model, and checked."""

import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from litebert.config import PRESETS, ExampleConfig, HeadConfig, UserError
from litebert.corpus.batches import START, Stream, take
from litebert.corpus.build import BuildOptions, build
from litebert.corpus.engines import Local
from litebert.corpus.examples import Batch
from litebert.corpus.inspect import show
from litebert.corpus.read import Bad, find_sources, read_documents
from litebert.infer.model import Model, load
from litebert.model.heads import Network
from litebert.model.packing import pack
from litebert.model.published import unshare
from litebert.model.weights import build as build_network
from litebert.model.weights import fill
from litebert.recipe import load_recipe
from litebert.text.train import TrainSettings, train_tokenizer

FAMILY = tuple(name for name in PRESETS if not name.endswith(("-v1", "-v2")))
TOLERANCE = 1e-5


def run_demo(say: Callable[[str], object]) -> dict[str, float]:
    """Largest differences between what must be equal, and the loss before training; raises if something is off."""
    config = load_recipe("cpu-demo").model
    network = build_network(config, [HeadConfig(kind="mlm"), HeadConfig(kind="pair")], seed=0).eval()
    batch = text_to_batch(config.vocab_size, say)
    ids = torch.from_numpy(batch.input_ids).long()
    mask = torch.from_numpy(batch.attention_mask).long()
    with torch.inference_mode():
        logits = network(ids, mask, positions=torch.from_numpy(batch.positions))["mlm"]
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(batch.labels).long()).item()
        say(
            f"through {sum(p.numel() for p in network.parameters()):,} fresh weights: masked loss {loss:.2f}, "
            f"a guess among {config.vocab_size:,} pieces is {math.log(config.vocab_size):.2f}"
        )
        found = equivalences(network, ids, mask)
    for what, gap in found.items():
        say(f"{what}: largest difference {gap:.1e}")
    if max(found.values()) > TOLERANCE or abs(loss - math.log(config.vocab_size)) > 1:
        raise UserError("what must be equal is not; please report this with your torch version")
    return found | {"masked loss": loss}


def text_to_batch(vocab_size: int, say: Callable[[str], object]) -> Batch:
    """A tokenizer, shards and one masked batch, from ten novels."""
    with resources.as_file(resources.files("litebert") / "data" / "books.txt.xz") as books:
        with tempfile.TemporaryDirectory() as folder:
            texts = read_documents(find_sources([books]), "text", Bad())
            tokenizer, counts = train_tokenizer(texts, TrainSettings(vocab_size=vocab_size))
            say(f"a tokenizer of {len(tokenizer):,} pieces from {counts.sentences:,} lines of ten novels")
            manifest = build([books], tokenizer, folder, BuildOptions(), Local(1))
            say(f"shards of {manifest['counts']['documents']} documents, {manifest['counts']['pieces']:,} pieces")
            stream = Stream(folder, ExampleConfig(length=128), 16)
            batch, _ = take(stream.examples(), stream, START)
        pieces = show(batch, 0, tokenizer)
        text = "".join(f"[{each.piece}]" if each.predicted else each.piece for each in pieces)
        say(f"the first example, what is to be predicted in brackets:\n  {text.replace('▁', ' ').strip()}")
        return batch


def equivalences(network: Network, ids: Tensor, mask: Tensor) -> dict[str, float]:
    """Ways to the same answer, and how far apart they come out."""
    config, real = network.config, mask.bool()
    padded = network.encoder(ids, mask)[real]
    row, boundaries = pack(ids, mask)
    wide, state = unshare(config, dict(network.state_dict()))
    deeper = build_network(replace(config, layers=2 * config.layers), network.head_configs, seed=0).eval()
    with tempfile.TemporaryDirectory() as folder:
        Model(network=network).save(Path(folder))
        loaded = load(folder)
    answers = {
        "unpadded and padded": network.encoder(row, boundaries=boundaries),
        "one shared layer and a copy of it for every layer": fill(
            wide, network.head_configs, state, "the copy"
        ).encoder(ids, mask)[real],
        "saved and loaded": loaded.encoder(ids, mask)[real],
    }
    found = {what: (answer - padded).abs().max().item() for what, answer in answers.items()}
    twice = network.encoder(ids, mask, passes=2 * config.layers)[real]
    found["twice the passes and twice the layers"] = (twice - deeper.encoder(ids, mask)[real]).abs().max().item()
    return found
