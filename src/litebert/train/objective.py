"""The network and a packed batch -> the losses of pre-training and how many guesses were right.

Sums, not means: whoever knows how much the whole batch predicts divides by it, so any split of a batch gives the same
update. Losses are in float32 or wider, whatever the network computes in.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from litebert.config import HeadConfig, ModelConfig, UserError
from litebert.corpus.pack import IGNORED
from litebert.model.cost import PRETRAINING
from litebert.model.heads import Network, widened
from litebert.recipe import DataConfig
from litebert.train.feed import Micro
from litebert.train.soft import compared

PRECISIONS = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}


@dataclass(frozen=True)
class Term:
    """A loss beside the two of masked pieces and pairs: a sum over what it is `per`, of which a mean is made."""

    name: str
    weight: float
    per: Literal["pieces", "masked", "examples"]


class Guesses(NamedTuple):
    """What a batch's guesses cost, a number each, and which were right. Without a pair head its two are empty."""

    masked: Tensor  # (M,) loss of each predicted piece
    masked_right: Tensor  # (M,) 1 or 0
    pair: Tensor  # (B,)
    pair_right: Tensor
    more: Tensor  # (K,) the sums of other terms

    def sums(self) -> Tensor:
        return torch.cat([torch.stack([part.sum() for part in self[:4]]), self.more])


class Objective(nn.Module):
    """A network with the losses on top, as one module that can be wrapped for many devices."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.masked_loss = masked_loss
        self.compared = compared  # for those who follow somebody's answers

    def forward(self, micro: Micro) -> Guesses:
        encoder = self.network.encoder
        return self.guess(encoder.states_at(read_places(micro), **read_inputs(self.network, micro)), micro)

    def guess(self, states: Tensor, micro: Micro) -> Guesses:
        """`states` are those at `read_places`."""
        network = self.network
        table = network.encoder.embeddings.words.weight
        hidden, firsts = states.tensor_split([len(micro.positions)])
        masked, right = self.masked_loss(network.heads["mlm"], hidden, table, micro.labels)
        if "pair" not in network.heads or micro.pair_labels is None:
            return Guesses(masked, right, *[masked.new_zeros(0)] * 3)
        pooled = network.sentence(firsts[: len(micro.pair_labels), None], "pair")  # the rest is filling
        logits = widened(network.heads["pair"](pooled))
        pair = F.cross_entropy(logits, micro.pair_labels.long(), reduction="none")
        pair_right = (logits.argmax(-1) == micro.pair_labels).to(pair.dtype)
        return Guesses(masked, right, pair, pair_right, masked.new_zeros(0))


def read_inputs(network: Network, micro: Micro) -> dict[str, Any]:
    """What the encoder is called with."""
    types = micro.token_type_ids if network.config.token_types > 1 else None
    found = {"input_ids": micro.input_ids, "token_type_ids": types, "boundaries": micro.boundaries}
    return found | ({"passes": micro.depth} if micro.depth else {})


def read_places(micro: Micro) -> Tensor:
    """Where in the row the heads read: the predicted pieces, then the first of each sequence."""
    return torch.cat([micro.positions, micro.boundaries.offsets[:-1]])


def masked_loss(head: nn.Module, states: Tensor, table: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    logits = widened(head(states, table))  # (M, V): only what is predicted is projected
    loss = F.cross_entropy(logits, labels.long(), reduction="none", ignore_index=IGNORED)
    return loss, (logits.argmax(-1) == labels).to(loss.dtype)


def pretraining_heads(config: ModelConfig, data: DataConfig) -> tuple[HeadConfig, ...]:
    """Masked LM, and the pair head where pairs are to be told apart."""
    if data.objective == "mlm":
        return PRETRAINING[:1]
    if not config.pooler:
        raise UserError(
            f"objective = {data.objective!r} reads the pooler, and this model has none; "
            "set model.pooler = true, or data.objective = 'mlm'"
        )
    return PRETRAINING


def build_objective(
    network: Network,
    precision: torch.dtype,
    compiled: bool,
    checkpointing: bool,
    made: Callable[[Network], Objective] = Objective,
) -> Objective:
    """An objective that computes as told. Of a trunk only one attention and one feed-forward are compiled, however deep
    it is: layers that share weights are the same module, and those that do not share the code."""
    master = torch.promote_types(precision, torch.float32)
    network = network.to(master)
    if "pair" not in network.heads and network.encoder.pooler is not None:
        network.encoder.pooler.requires_grad_(False)  # nothing reads it, so nothing can teach it
    objective = made(network)
    ready(network, precision, compiled)
    trunk = network.encoder.trunk
    for part in (*trunk.attention, *trunk.ffn):
        if checkpointing:
            random = bool(network.config.dropout or network.config.attention_dropout)
            part.forward = partial(checkpoint, part.forward, use_reentrant=False, preserve_rng_state=random)
    if compiled:
        objective.masked_loss = torch.compile(masked_loss, dynamic=True)
        objective.compared = torch.compile(compared, dynamic=True)
    return objective


def ready(network: Network, precision: torch.dtype, compiled: bool) -> None:
    """What flows through a network, and whether its parts are compiled."""
    encoder = network.encoder
    encoder.embeddings.compute = precision
    for part in (*encoder.trunk.attention, *encoder.trunk.ffn, encoder.embeddings) if compiled else ():
        part.forward = torch.compile(part.forward, dynamic=True)
