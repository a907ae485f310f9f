"""A frozen encoder and shards -> how well a linear head on its states tells order or next: what it knows of a question
that it was not asked in pre-training.

The head reads the first piece's state and the mean state of each of the two texts. It learns from the train part of the
shards and is scored on the held-out part, on the very examples on which a trained pair head is scored.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.config import ExampleConfig
from litebert.corpus.batches import START, Stream, skip, take
from litebert.corpus.pack import pack
from litebert.corpus.shards import Part
from litebert.infer.model import Model
from litebert.model.heads import Network
from litebert.model.packing import first_piece
from litebert.recipe import DataConfig
from litebert.train.feed import Micro, to_micro
from litebert.train.heldout import AT_ONCE, MOST_EPOCHS, SEED, protocol
from litebert.train.objective import read_inputs

STRENGTHS = tuple(10.0**power for power in range(-4, 3))  # of the penalty, a mean example's loss being 1
CHOOSING = 5  # every fifth example of the train part decides which
ROUNDS = 200  # of the fit, at most


def probe_pairs(
    model: Model,
    shards: str,
    objective: str,
    pairs: int,  # to learn from
    wanted: int,  # to score on
    device: torch.device,
    tell: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """Accuracy on the held-out documents, with its standard error and what the head learned from."""
    config = protocol(DataConfig(objective=objective), model.config.positions)  # type: ignore[arg-type]
    network = model.network.to(device).eval()
    known, labels, _ = read_states(network, shards, config, pairs, "train", device)
    tell(f"a head for {objective} on the frozen states of {len(labels):,} pairs")
    head, strength = fit(known, labels)
    asked, right, once = read_states(network, shards, config, wanted, "held-out", device)
    share = float((head(asked) == right).double().mean())
    again = math.sqrt(max(1.0, len(right) / once))  # seen with another mask it is not another example
    error = again * math.sqrt(share * (1 - share) / len(right))
    return {"value": share, "error": error, "pairs": len(labels), "examples": len(right), "strength": strength}


@torch.no_grad()
def read_states(
    network: Network, shards: str, config: ExampleConfig, wanted: int, part: Part, device: torch.device
) -> tuple[Tensor, Tensor, int]:
    """(N, 3·H) vectors, (N,) labels, and how many examples an epoch has."""
    stream = Stream(shards, config, 1, SEED, part)
    examples = stream.examples(check=False)
    once = len(examples.epoch(0))
    limit = min(wanted, MOST_EPOCHS * once)
    vectors, labels = [], []
    network.encoder.embeddings.compute = torch.bfloat16 if device.type == "cuda" else torch.float32
    for start in range(0, limit, AT_ONCE):
        size = min(AT_ONCE, limit - start)
        batch, _ = take(examples, replace(stream, size=size), skip(examples, START, start))
        micro = to_micro(pack(batch, config.length, examples.pad_id, device.type == "cuda"), device)
        assert micro.pair_labels is not None, "the question is about pairs"
        states = network.encoder(**read_inputs(network, micro)).float()
        vectors.append(pair_vectors(states, micro))
        labels.append(micro.pair_labels.long())
    return torch.cat(vectors), torch.cat(labels), once


def pair_vectors(states: Tensor, micro: Micro) -> Tensor:
    """The first piece's state beside the mean of either text's."""
    count, pieces = micro.packed.examples, micro.packed.pieces
    offsets = micro.boundaries.offsets[: count + 1].long()
    owner = torch.repeat_interleave(torch.arange(count, device=states.device), offsets.diff())
    found = [first_piece(states, micro.boundaries)[:count]]
    for side in (0, 1):
        here = (micro.token_type_ids[:pieces] == side).to(states.dtype)
        total = states.new_zeros(count, states.shape[1]).index_add(0, owner, states[:pieces] * here[:, None])
        found.append(total / states.new_zeros(count).index_add(0, owner, here).clamp(min=1)[:, None])
    return torch.cat(found, 1)  # (N, 3·H)


def fit(vectors: Tensor, labels: Tensor) -> tuple[Callable[[Tensor], Tensor], float]:
    """A linear head with the penalty that serves best on a part that it was not fitted to."""
    mean, deviation = vectors.mean(0), vectors.std(0, correction=0).clamp(min=1e-6)
    x = (vectors - mean) / deviation
    kept = torch.arange(len(x), device=x.device) % CHOOSING == 0
    flat, along = torch.linalg.eigh((x.T @ x / (4 * len(x))).double())
    axes = (flat.to(x.dtype), along.to(x.dtype))

    def value(strength: float) -> float:
        weight, bias = logistic(x[~kept], labels[~kept], strength, axes)
        return float(((x[kept] @ weight + bias > 0) == (labels[kept] == 1)).double().mean())

    strength = max(reversed(STRENGTHS), key=value)  # of equals, the greatest
    weight, bias = logistic(x, labels, strength, axes)
    return (lambda other: ((other - mean) / deviation @ weight + bias > 0).long()), strength


def logistic(x: Tensor, labels: Tensor, strength: float, axes: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The least mean loss plus strength times half the squared weights.

    Sought in steps along the axes of the vectors, each as long as the loss is flat there: tens of rounds, not hundreds.
    """
    flat, along = axes
    along = along / (flat.clamp(min=0) + strength).sqrt()
    steps, bias = x.new_zeros(x.shape[1], requires_grad=True), x.new_zeros((), requires_grad=True)
    solver = torch.optim.LBFGS([steps, bias], max_iter=ROUNDS, line_search_fn="strong_wolfe")
    target = labels.to(x.dtype)

    def loss() -> Tensor:
        solver.zero_grad()
        weight = along @ steps
        value = F.binary_cross_entropy_with_logits(x @ weight + bias, target) + strength / 2 * weight.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    solver.step(loss)  # type: ignore[no-untyped-call]
    return along @ steps.detach(), bias.detach()
