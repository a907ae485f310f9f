"""A config, a batch and a length -> the GPU memory of one pre-training step, and the largest batch that fits a card.

The step is that of `litebert pretrain`: masked LM and sentence pair, compiled, bf16 over fp32 master weights, fused
attention, no activation checkpointing, 15 % of the pieces predicted. `litebert bench memory` compares the estimate with
what a GPU allocates.
"""

import re
from dataclasses import dataclass
from functools import cache

from litebert.config import ModelConfig, UserError
from litebert.model.cost import count, pretraining_heads

LENGTHS = (64, 128, 256, 320, 384, 512)  # of the table that BERT's authors published for a 12 GB card
MASKED = 0.15
WORKSPACE = 64 << 20  # what the matrix-product library takes for itself
CONTEXT = 800 << 20  # what a process holds on the card outside PyTorch's allocator: driver context, kernels
_UNITS = {
    "": 1,
    "k": 1000,
    "m": 1000**2,
    "g": 1000**3,
    "t": 1000**4,
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
    "ti": 1 << 40,
}


@dataclass(frozen=True, kw_only=True)
class StepMemory:
    """Bytes that PyTorch has allocated at the worst moment of a step."""

    weights: int  # fp32 master weights and two moments; gradients and the update when they outweigh activations
    activations: int  # what the forward pass keeps for the backward pass
    passing: int  # buffers of the moment: the loss over the vocabulary, or one layer's backward pass

    @property
    def total(self) -> int:
        return self.weights + self.activations + self.passing


def step_memory(config: ModelConfig, batch: int, length: int) -> StepMemory:
    """What is alive at the two candidate peaks, the start of the backward pass and its end; the larger one counts."""
    hidden, ffn, width = config.hidden_size, config.ffn_size, config.embedding_size
    parameters = _parameters(config)
    pieces, masked = batch * length, round(MASKED * batch * length)
    layer = (
        (2 + 6 + 2 + 2) * hidden  # bf16 input, q k v, what was seen, sum into the norm
        + 4 * config.heads  # log-sum-exp of the attention rows
        + (2 + 2) * hidden  # bf16 input and sum of the feed-forward
        + 4 * ffn  # bf16 before and after the activation
        + (2 if config.dropout else 0) * hidden  # a byte an element and mask
        + 16  # mean and deviation of two norms
    )
    embedding = 4 * width + 2 * width + 8 * 4
    per_masked = 2 * hidden + 8 * width + 4 * hidden
    kept = pieces * (config.depth * layer + embedding + 2 * hidden) + masked * per_masked
    loss = masked * 8 * config.vocab_size  # bf16 logits and their gradient, and what passes between them
    block = pieces * (4 * hidden + 4 * ffn + 10 * hidden)  # gradients inside one layer
    start = StepMemory(weights=12 * parameters, activations=kept, passing=max(loss, block) + WORKSPACE)
    end = StepMemory(weights=24 * parameters, activations=0, passing=WORKSPACE)  # the optimizer's step
    return max(start, end, key=lambda moment: moment.total)


@cache
def _parameters(config: ModelConfig) -> int:
    return sum(count(config, pretraining_heads(config)).values())


def largest_batch(config: ModelConfig, length: int, budget: int) -> int:
    """The largest batch whose step fits, the context of the process included; 0 if none does."""
    if step_memory(config, 1, length).total + CONTEXT > budget:
        return 0
    low, high = 1, 2
    while step_memory(config, high, length).total + CONTEXT <= budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if step_memory(config, middle, length).total + CONTEXT <= budget else (low, middle)
    return low


def fit_table(config: ModelConfig, budget: int) -> list[dict[str, int]]:
    rows = []
    for length in [length for length in LENGTHS if length <= config.positions] or [config.positions]:
        batch = largest_batch(config, length, budget)
        rows.append({"length": length, "batch": batch, "bytes": step_memory(config, max(batch, 1), length).total})
    return rows


def parse_bytes(text: str) -> int:
    """
    >>> parse_bytes("12GiB"), parse_bytes("12 GB"), parse_bytes("1.5g")
    (12884901888, 12000000000, 1500000000)
    """
    match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([kmgt]?i?)b?\s*", text.lower())
    if not match or match[2] not in _UNITS:
        raise UserError(f"{text!r} is not an amount of memory such as 12GiB or 80GB")
    if not match[2] and 0 < float(match[1]) < 1 << 20:
        meant = "GiB" if float(match[1]) < 1024 else "MiB"
        raise UserError(f"{text!r} would be so many bytes; write the unit: {match[1]}{meant}")
    return int(float(match[1]) * _UNITS[match[2]])
