"""The held-out documents -> masked accuracy, perplexity and order accuracy, each with its standard error.

One protocol for every run, so that they compare: length 128, 15 % single pieces masked, order pairs at true sentence
boundaries, a fixed seed. With another tokenizer than the one you compare with, look at bits per character instead.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litebert.config import ExampleConfig, MaskConfig, UserError
from litebert.corpus.batches import START, Stream, skip, take
from litebert.corpus.pack import IGNORED, pack
from litebert.corpus.shards import PARTS, Corpus, Part
from litebert.infer.model import Model
from litebert.recipe import DataConfig, Recipe, read_recipe
from litebert.strict import parse
from litebert.text.tokenizer import Tokenizer
from litebert.train.feed import Micro, to_micro
from litebert.train.objective import Guesses, build_objective
from litebert.train.processes import Processes
from litebert.train.run import RECIPE

SEED = 20_191_113
MOST_EPOCHS = 4  # a small held-out part is seen with so many masks, no more: it does not become larger by repetition
AT_ONCE = 128
LENGTH = 128
PAIR = {"sop": "order", "nsp": "next", "mlm": ""}  # what the pair head tells


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


def fits(length: int, model: Model) -> None:
    most = model.config.positions
    if length > most:
        raise UserError(f"length = {length} does not fit the model's {most} positions; give --length {most} or less")


def part_named(said: str) -> Part:
    for part in PARTS:
        if (said or "held-out") == part:
            return part
    raise UserError(f"shards have no part {said!r}; they have: {', '.join(PARTS)}")


@torch.no_grad()
def evaluate(
    model: torch.nn.Module,
    folder: str,
    config: ExampleConfig,
    wanted: int,
    processes: Processes,
    say: Callable[[int], object] = lambda _: None,  # how many examples are done
    depth: int = 0,  # passes; 0: as many as the network makes
    types: bool = True,  # whether token types tell the second text: not in a run that never shows one
    part: Part = "held-out",
) -> dict[str, Any]:
    """`model` is an objective, wrapped for many devices or not. The examples are the same for any number of them."""
    stream = Stream(folder, config, 1, SEED, part)
    examples = stream.examples(check=False)
    once = len(examples.epoch(0))
    limit = min(wanted, MOST_EPOCHS * once)
    turns = -(-limit // AT_ONCE)
    characters = piece_lengths(Tokenizer.load(Path(folder) / "tokenizer"))
    sums = torch.zeros(11, dtype=torch.float64, device=processes.device)
    spelled = 0
    training, place, at = model.training, START, 0
    model.eval()
    for first in range(0, turns, processes.ranks):  # sharded weights need all processes at work, or none
        turn = first + processes.rank
        start = min(turn, turns - 1) * AT_ONCE
        size = min(AT_ONCE, limit - start)
        place, at = skip(examples, place, start - at), start  # from where it was: the plan of an epoch is work
        batch, _ = take(examples, replace(stream, size=size), place)
        micro = to_micro(pack(batch, config.length, examples.pad_id, processes.device.type == "cuda"), processes.device)
        if not types:
            micro = replace(micro, token_type_ids=torch.zeros_like(micro.token_type_ids))
        counted = count(model(replace(micro, depth=depth)), micro, sums)
        if turn < turns:
            spelled += int(characters[batch.labels].sum())
            sums += counted
        say(min(limit, (turn + 1) * AT_ONCE))
    model.train(training)
    return figures([*processes.total(*sums.tolist(), spelled), limit, once], config)


def trained_for(name: str, model: Model) -> str:
    """What the pair head of a model tells: as its run says, or else as its family's papers have it."""
    if "pair" not in model.heads:
        return "mlm"
    recipe = Path(name) / RECIPE
    if recipe.is_file():
        return parse(Recipe, read_recipe(str(recipe))).data.objective
    return "sop" if model.config.family == "albert" else "nsp"


def score_model(
    model: Model,
    folder: str,
    objective: str,
    wanted: int,
    device: torch.device,
    say: Callable[[int], object],
    passes: int = 0,  # 0: as it was trained
    length: int = 0,  # 0: the protocol's
    part: Part = "held-out",  # or "train": what it learned from, to see whether it knows that by heart
) -> dict[str, Any]:
    """A trained model by the protocol, on the documents of any shards of its tokenizer."""
    if "mlm" not in model.heads:
        raise UserError(f"this model has no masked-LM head (its heads: {', '.join(model.heads) or 'none'})")
    if model.tokenizer is None:
        raise UserError("this model has no tokenizer, so it cannot be told whether the shards are in its pieces")
    if objective not in PAIR:
        raise UserError(f"objective = {objective!r}; allowed: {', '.join(PAIR)}")
    if objective != "mlm" and "pair" not in model.heads:
        raise UserError(f"objective = {objective!r} asks a pair head, and this model has none; use 'mlm'")
    model.encoder.trunk.walk(passes or None)
    Corpus(folder, part).check_tokenizer(model.tokenizer.checksum)
    fits(length, model)
    config = protocol(DataConfig(objective=objective), model.config.positions)  # type: ignore[arg-type]
    config = replace(config, length=length or config.length)
    precision = torch.bfloat16 if device.type == "cuda" else torch.float32
    guesser = build_objective(model.network.to(device), precision, compiled=False, checkpointing=False)
    found = evaluate(guesser, folder, config, wanted, Processes(device), say, passes, part=part)
    asked = {"objective": objective, "passes": passes or model.config.layers, "length": config.length, "part": part}
    return found | asked


def count(guesses: Guesses, micro: Micro, like: Tensor) -> Tensor:
    """What `figures` needs, added over the examples of a batch."""
    nothing = like.new_zeros(micro.packed.examples)
    right = nothing.index_add(0, micro.owners, guesses.masked_right.double())
    loss = nothing.index_add(0, micro.owners, guesses.masked.double())
    real = nothing.index_add(0, micro.owners, (micro.labels != IGNORED).double())
    pair = [guesses.pair.double(), guesses.pair_right.double()]
    squares = [right**2, right * real, real**2, loss**2, loss * real]
    rows = [guesses.masked.double(), right, real, *squares, *pair, torch.ones_like(pair[0])]
    return torch.stack([row.sum() for row in rows])


def figures(sums: list[float], config: ExampleConfig) -> dict[str, Any]:
    """Sums over everything seen -> what is reported. The error of a mean over pieces takes examples, not pieces, as
    what was drawn: var ≈ Σ (rightᵢ - p·countᵢ)² / (Σ countᵢ)²; and an example seen again with another mask is not
    another example."""
    loss, right, masked, right2, both, masked2, loss2, costly, pair_loss, pair_right, pairs, *rest = sums
    characters, examples, once = rest
    again = math.sqrt(max(1.0, examples / once))
    accuracy, mean = right / masked, loss / masked
    spread = max(0.0, right2 - 2 * accuracy * both + accuracy**2 * masked2)
    loss_spread = max(0.0, loss2 - 2 * mean * costly + mean**2 * masked2)
    perplexity = math.exp(min(700.0, mean))
    found = {
        "examples": int(examples),
        "masked_accuracy": accuracy,
        "masked_accuracy_error": again * math.sqrt(spread) / masked,
        "masked_loss": mean,
        "perplexity": perplexity,
        "perplexity_error": perplexity * again * math.sqrt(loss_spread) / masked,
        "bits_per_character": loss / math.log(2) / max(1.0, characters),
    }
    if pairs:
        name = PAIR[config.objective]
        share = pair_right / pairs
        found |= {
            f"{name}_accuracy": share,
            f"{name}_accuracy_error": again * math.sqrt(share * (1 - share) / pairs),
            f"{name}_loss": pair_loss / pairs,
        }
    return found


def piece_lengths(tokenizer: Tokenizer) -> np.ndarray:
    """Characters of text that each piece stands for (bytes where it is byte-level), the space before it included."""
    pieces = (tokenizer.piece(index).removeprefix("##") for index in range(len(tokenizer)))
    lengths = [0 if index in tokenizer.special_ids else len(piece) for index, piece in enumerate(pieces)]
    return np.array(lengths, dtype=np.int64)
