"""A config -> what it costs: parameters by part, and FLOPs forward and in training."""

from collections import Counter
from collections.abc import Sequence

import torch

from litebert.config import HeadConfig, ModelConfig
from litebert.model.heads import Network

PRETRAINING = (HeadConfig(kind="mlm"), HeadConfig(kind="pair"))


def pretraining_heads(config: ModelConfig) -> tuple[HeadConfig, ...]:
    """Those of the two that can stand on it: a pair head needs a pooler, a wide masked-LM head a wide word table."""
    if config.family != "albert" and config.embedding_size != config.hidden_size:
        return ()
    return PRETRAINING if config.pooler else PRETRAINING[:1]


def count(config: ModelConfig, heads: Sequence[HeadConfig] = ()) -> dict[str, int]:
    """Parameters by part, counted on the modules themselves (built without memory)."""
    with torch.device("meta"):
        network = Network(config, heads)
    parts: Counter[str] = Counter()
    for name, parameter in network.named_parameters():
        parts[_part(name)] += parameter.numel()
    return dict(parts)


def _part(name: str) -> str:
    where = name.removeprefix("encoder.").split(".")
    match where[0]:
        case "embeddings":
            return {"words": "words", "positions": "positions", "types": "token types", "project": "projection"}.get(
                where[1], "embedding norm"
            )
        case "trunk":
            return {"attention": "attention", "ffn": "feed-forward"}[where[1]]
        case "heads":
            return f"{where[1]} head"
        case _:
            return "pooler"


def flops_per_piece(config: ModelConfig, length: int) -> int:
    """Multiply-adds of the matrix products counted twice, forward, for one piece in a sequence of this length.

    2·E·H for the projection; in each layer 2·(4·H² + 2·H·F) for the weights and 4·length·H for attention itself.
    Training costs three times that. Heads are not counted.
    """
    hidden, ffn = config.hidden_size, config.ffn_size
    layer = 2 * (4 * hidden * hidden + 2 * hidden * ffn) + 4 * length * hidden
    return (2 * config.embedding_size * hidden if config.projects else 0) + config.depth * layer


def training_flops(
    config: ModelConfig, passes: int, pieces: int, squares: int, masked: int, read: int | None = None
) -> int:
    """Of the matrix products of a training step, forward and backward: three times the forward pass.

    Pieces are real ones, `squares` the sum of the squared lengths of their sequences, `masked` those predicted:
    3 · (pieces · (2·E·H + passes · 2·(4·H² + 2·H·F)) + passes · 4·H · squares + masked · 2·(H·W + W·V)), W the width of
    the masked-LM head, E·H where there is a projection. Where only `read` pieces leave the last layer, it is finished
    for no others: less 3 · (pieces - read) · 2·(H² + 2·H·F).
    """
    hidden, ffn = config.hidden_size, config.ffn_size
    width = config.embedding_size if config.family == "albert" else hidden
    layer = 2 * (4 * hidden * hidden + 2 * hidden * ffn)
    projection = 2 * config.embedding_size * hidden if config.projects else 0
    head = 2 * (hidden * width + width * config.vocab_size)
    depth = passes * config.inner_groups
    unread = 0 if read is None else (pieces - read) * 2 * (hidden * hidden + 2 * hidden * ffn)
    return 3 * (pieces * (projection + depth * layer) + depth * 4 * hidden * squares + masked * head - unread)
