"""A depth dial: one shared layer taught to answer after fewer passes too, the deep answer teaching the shallow one.

Every step draws one of the depths. Its states are on the way to the deep ones, so it costs only the heads. Undialled,
masked words suffer from a change of passes and the order head is lost: every head is trained at every depth.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from litebert.config import DialConfig, ModelConfig, UserError
from litebert.model.heads import Network
from litebert.train.feed import Micro
from litebert.train.objective import Guesses, Objective, Term, read_inputs, read_places
from litebert.train.soft import soft_targets


def terms(config: DialConfig, pair_weight: float = 1.0) -> list[Term]:
    """The losses of the shallow answer, but for those that weigh nothing."""
    every = [
        Term("shallow_masked", config.weight, "masked"),
        Term("shallow_pair", config.weight * pair_weight, "examples"),
        Term("shallow_soft", config.soft, "masked"),
    ]
    return [term for term in every if term.weight] if config.depths else []


def drawn(config: DialConfig, seed: int, step: int) -> int:
    """The depth that a step teaches beside its own; 0 without a dial. The same in every process.

    >>> [drawn(DialConfig(depths=(3, 6, 9)), 0, step) for step in range(6)]
    [9, 3, 3, 9, 9, 3]
    """
    if not config.depths:
        return 0
    return int(np.random.default_rng((seed, step, len(config.depths))).choice(config.depths))


class Dialled(Objective):
    """An objective that answers twice while it trains."""

    def __init__(self, network: Network, terms: Sequence[Term]) -> None:
        super().__init__(network)
        self.terms = terms

    def forward(self, micro: Micro) -> Guesses:
        if not self.training:
            return super().forward(micro)
        network = self.network
        states = network.encoder.hidden_states(**read_inputs(network, replace(micro, depth=0)))
        deep, shallow = states[-1], states[micro.depth * network.config.inner_groups]
        guesses, early = (self.guess(each[read_places(micro)], micro) for each in (deep, shallow))
        where = micro.positions[: micro.packed.masked]
        losses: dict[str, Callable[[], Tensor]] = {
            "shallow_masked": early.masked.sum,
            "shallow_pair": early.pair.sum,
            "shallow_soft": lambda: soft_targets(network, network, shallow, deep.detach(), where, 1.0, self.compared),
        }
        more = [losses[term.name]().to(guesses.masked.dtype) for term in self.terms]
        return guesses._replace(more=torch.stack(more))


def check_dial(config: DialConfig, model: ModelConfig, fewest: int) -> None:
    """`fewest` passes that any phase makes."""
    if not config.depths:
        return
    if not model.one_layer:
        raise UserError("dial.depths need a model whose layers are all the same one (sharing 'all', 1 group)")
    if max(config.depths) >= fewest:
        raise UserError(f"dial.depths = {list(config.depths)} must be below the {fewest} passes that are made")
