"""The held-out documents -> masked accuracy, perplexity and order accuracy, each with its standard error.

One protocol for every run, so that they compare: length 128, 15 % single pieces masked, order pairs at true sentence
boundaries, a fixed seed. With another tokenizer than the one you compare with, look at bits per character instead.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from litebert.config import ExampleConfig, MaskConfig, UserError
from litebert.corpus.batches import START, Stream, take
from litebert.corpus.pack import IGNORED, pack_all
from litebert.recipe import DataConfig
from litebert.text.tokenizer import Tokenizer
from litebert.train.feed import to_micro
from litebert.train.processes import Processes

SEED = 20_191_113
MOST_EPOCHS = 4  # a small held-out part is seen with so many masks, no more: it does not become larger by repetition
AT_ONCE = 256
LENGTH = 128


def protocol(data: DataConfig, positions: int) -> ExampleConfig:
    """The common yardstick; what the pair head was trained for decides what it is asked."""
    mask = MaskConfig(rate=0.15, unit="piece", ngram=1, masked=0.8, random=0.1)
    return ExampleConfig(
        layout="segment-pair", objective=data.objective, length=min(LENGTH, positions), short_rate=0.0, mask=mask
    )


def unscored(folder: str, data: DataConfig, positions: int) -> str | None:
    """Why nothing can be scored, if so: said before training, not after it."""
    try:
        Stream(folder, protocol(data, positions), 1, SEED, "held-out").examples(check=False)
    except UserError as problem:
        return f"no score on unseen text: {problem}"
    return None


@torch.no_grad()
def evaluate(
    model: torch.nn.Module, folder: str, config: ExampleConfig, wanted: int, processes: Processes, at_once: int = 64
) -> dict[str, Any]:
    """`model` is an objective, wrapped for many devices or not."""
    ranks = processes.ranks
    size = AT_ONCE * ranks
    stream = Stream(folder, config, size, SEED, "held-out", processes.rank, ranks)
    examples = stream.examples(check=False)
    limit = min(wanted, MOST_EPOCHS * len(examples.epoch(0)))
    if limit < size:
        size = max(1, limit // ranks) * ranks
        stream = replace(stream, size=size)
    characters = piece_lengths(Tokenizer.load(Path(folder) / "tokenizer"))
    sums = torch.zeros(9, dtype=torch.float64, device=processes.device)
    seen = [0, 0]
    place = START
    training = model.training
    model.eval()
    for _ in range(max(1, -(-limit // size))):
        batch, place = take(examples, stream, place)
        seen[0] += len(batch.lengths)
        seen[1] += int(characters[batch.labels].sum())
        for part in pack_all(batch, at_once, config.length, examples.pad_id, processes.device.type == "cuda"):
            micro = to_micro(part, processes.device)
            guesses = model(micro)
            right = sums.new_zeros(part.examples).index_add(0, micro.owners, guesses.masked_right.double())
            real = (micro.labels != IGNORED).double()
            count = sums.new_zeros(part.examples).index_add(0, micro.owners, real)
            pair = [guesses.pair.double(), guesses.pair_right.double()]
            rows = [guesses.masked.double(), right, count, right**2, right * count, count**2, *pair]
            sums += torch.stack([*(row.sum() for row in rows), sums.new_tensor(float(len(pair[0])))])
    model.train(training)
    return figures(processes.total(*sums.tolist(), *seen), config)


def figures(sums: list[float], config: ExampleConfig) -> dict[str, Any]:
    """Sums over everything seen -> what is reported. The error of a share of pieces takes examples, not pieces, as what
    was drawn: var ≈ Σ (rightᵢ - p·countᵢ)² / (Σ countᵢ)²."""
    loss, right, count, right2, both, count2, pair_loss, pair_right, pairs, examples, characters = sums
    accuracy = right / count
    spread = max(0.0, right2 - 2 * accuracy * both + accuracy**2 * count2)
    found = {
        "examples": int(examples),
        "masked_accuracy": accuracy,
        "masked_accuracy_error": math.sqrt(spread) / count,
        "masked_loss": loss / count,
        "perplexity": math.exp(min(700.0, loss / count)),
        "bits_per_character": loss / math.log(2) / max(1.0, characters),
    }
    if pairs:
        name = {"sop": "order", "nsp": "next", "mlm": ""}[config.objective]
        share = pair_right / pairs
        found |= {
            f"{name}_accuracy": share,
            f"{name}_accuracy_error": math.sqrt(share * (1 - share) / pairs),
            f"{name}_loss": pair_loss / pairs,
        }
    return found


def piece_lengths(tokenizer: Tokenizer) -> np.ndarray:
    """Characters of text that each piece stands for (bytes where it is byte-level), the space before it included."""
    pieces = (tokenizer.piece(index).removeprefix("##") for index in range(len(tokenizer)))
    lengths = [0 if index in tokenizer.special_ids else len(piece) for index, piece in enumerate(pieces)]
    return np.array(lengths, dtype=np.int64)
