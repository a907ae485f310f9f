"""The tensors of a network -> those of one with more layers.

Where all layers are one there is nothing to copy: it runs more often. Elsewhere the new layers start from the old ones,
the stack on top of itself (Gong et al. 2019): layer i from i mod n.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from litebert.config import ModelConfig, UserError
from litebert.model.encoder import Plan, plan_of

State = dict[str, Tensor]
_PART = re.compile(r"^(encoder\.trunk\.)(attention|ffn)\.(\d+)\.(.*)$")


def with_layers(config: ModelConfig, layers: int) -> ModelConfig:
    """The config of a phase: 0 layers are all that it has."""
    if layers and config.groups > layers:
        raise UserError(f"passes = {layers} is fewer than the model's groups = {config.groups}; each needs a layer")
    return replace(config, layers=layers) if layers else config


def sources(old: ModelConfig, new: ModelConfig) -> dict[tuple[str, int], int]:
    """Which old attention or feed-forward each new one starts from.

    >>> from litebert.config import PRESETS
    >>> bert = PRESETS["bert-tiny"]
    >>> found = sources(bert, replace(bert, layers=5))
    >>> [found["ffn", number] for number in range(5)]
    [0, 1, 0, 1, 0]
    """
    before, inner = plan_of(old), old.inner_groups
    kept = [max(pair[which] for pair in before) + 1 for which in (0, 1)]
    found: dict[tuple[str, int], int] = {}
    for at, pair in enumerate(plan_of(new)):
        layer, block = divmod(at, inner)
        below = before[layer % old.layers * inner + block]
        for which, kind in enumerate(("attention", "ffn")):
            found.setdefault((kind, pair[which]), pair[which] if pair[which] < kept[which] else below[which])
    return found


def grown(state: State, old: ModelConfig, new: ModelConfig) -> State:
    """The tensors of a deeper (or shallower) network, each from where it starts; moments go the same way."""
    return _moved(state, sources(old, new))


def taken_from(state: State, old: Plan, new: Plan, layers: Sequence[int]) -> State:
    """The tensors of a network whose layers begin as these layers of another."""
    origin: dict[tuple[str, int], int] = {}
    for pair, layer in zip(new, layers, strict=True):
        for which, kind in enumerate(("attention", "ffn")):
            origin.setdefault((kind, pair[which]), old[layer][which])
    return _moved(state, origin)


def _moved(state: State, origin: dict[tuple[str, int], int]) -> State:
    found = {}
    rest = {name: tensor for name, tensor in state.items() if not _PART.match(name)}
    parts = {(match[2], int(match[3]), match[4]): state[name] for name in state if (match := _PART.match(name))}
    leaves = {(kind, leaf) for kind, _, leaf in parts}
    for (kind, number), source in origin.items():
        for of, leaf in leaves:
            if of == kind:
                found[f"encoder.trunk.{kind}.{number}.{leaf}"] = parts[kind, source, leaf].clone()
    return rest | found
