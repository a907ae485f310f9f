"""A trunk whose layers are all one -> an ONNX graph that runs that layer in a loop, and onnxruntime to run it in int8.

Where sequences are equally long onnxruntime's int8 is quicker than oneDNN's through PyTorch: most of all for a single
short text, where a call of oneDNN costs more than its work (`litebert bench infer` has both).
"""

from importlib.util import find_spec
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from litebert.config import UserError
from litebert.infer.graph import MICROSOFT, Graph
from litebert.model.encoder import Encoder
from litebert.model.layers import FeedForward, SelfAttention
from litebert.model.packing import Boundaries, Mask

FAR = float(np.finfo(np.float32).min)


def write_trunk(graph: Graph, encoder: Encoder, x: str, passes: str = "") -> str:
    """The layers over what `x` names, under the input `attention_mask`. `passes` names their number where it is an
    input; one layer that is all there is stands in a loop, other plans are written out."""
    config, walk = encoder.config, encoder.trunk
    mask = graph.op("Cast", "attention_mask", to=graph.onnx.TensorProto.INT32)
    if walk.one_pass is None:
        for a, f in walk.plan:
            x = write_layer(graph, encoder, a, f, x, mask)
        return x
    body = Graph(graph.int8, graph)
    made = "layer_in"
    for a, f in walk.one_pass:
        made = write_layer(body, encoder, a, f, made, mask)
    return graph.repeat(passes or graph.constant(config.layers), x, body, "layer_in", made, config.hidden_size)


def write_layer(graph: Graph, encoder: Encoder, a: int, f: int, x: str, mask: str) -> str:
    config = encoder.config
    attention = cast(SelfAttention, encoder.trunk.attention[a])
    ffn = cast(FeedForward, encoder.trunk.ffn[f])
    qkv = graph.linear(f"attention.{a}.qkv", attention.qkv, x)
    q, k, v = graph.op("Split", qkv, outputs=3, axis=-1, num_outputs=3)
    seen = graph.op(
        "MultiHeadAttention",
        *(q, k, v, "", mask),
        domain=MICROSOFT,
        num_heads=config.heads,
        unidirectional=int(config.causal),
        mask_filter_value=FAR,
    )
    out = graph.linear(f"attention.{a}.out", attention.out, seen)
    x = graph.norm(f"attention.{a}.norm", attention.norm, graph.op("Add", out, x))
    inner = graph.activation(config.activation, graph.linear(f"ffn.{f}.up", ffn.up, x))
    down = graph.linear(f"ffn.{f}.down", ffn.down, inner)
    return graph.norm(f"ffn.{f}.norm", ffn.norm, graph.op("Add", down, x))


def runtime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise UserError("running ONNX needs the package onnxruntime: pip install 'litebert[onnx]'") from None
    return onnxruntime


def open_session(model: bytes | str, threads: int = 0, alone: bool = True) -> Any:
    """`alone`: nothing else computes in this process, so its threads may stay awake between calls."""
    library = runtime()
    options = library.SessionOptions()
    options.intra_op_num_threads = threads or torch.get_num_threads()
    if not alone:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return library.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class Looped:
    """The shared layer in int8, so many passes of it."""

    def __init__(self, encoder: Encoder) -> None:
        graph, shape = Graph(int8=True), ("batch", "length", encoder.config.hidden_size)
        states = write_trunk(graph, encoder, "states_in", "passes")
        graph.nodes.append(graph.onnx.helper.make_node("Identity", [states], ["states"]))
        inputs = {"states_in": shape, "attention_mask": shape[:2], "passes": ()}
        self.session = open_session(graph.write(inputs, {"states": shape}), alone=False)

    def __call__(self, x: Tensor, passes: int) -> Tensor:
        given = {"states_in": x.numpy(), "attention_mask": np.ones(x.shape[:2], np.int64), "passes": np.array(passes)}
        return torch.from_numpy(self.session.run(None, given)[0])


def looped(encoder: Encoder) -> Looped | None:
    """None where there are several layers, or no onnxruntime."""
    held = encoder.config.one_layer and find_spec("onnx") is not None and find_spec("onnxruntime") is not None
    return Looped(encoder) if held else None


def as_batch(x: Tensor, mask: Mask) -> Tensor | None:
    """The states as (B, S, H), if every sequence is as long as the others and sees all of itself."""
    if mask is None:
        return x
    if not isinstance(mask, Boundaries) or (len(mask.offsets) - 1) * mask.longest != len(x):
        return None
    return x.view(-1, mask.longest, x.shape[-1])
