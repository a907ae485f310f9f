"""A trunk whose layers are all one -> an ONNX graph that runs that layer in a loop, and onnxruntime to run it in int8.

Where sequences are equally long onnxruntime's int8 is quicker than oneDNN's through PyTorch: most of all for a single
short text, where a call of oneDNN costs more than its work (`litebert bench infer` has both).
"""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from litebert.config import UserError
from litebert.infer.first import Factors
from litebert.infer.graph import MICROSOFT, Graph, Rows
from litebert.model.encoder import Encoder
from litebert.model.layers import Embeddings, FeedForward, SelfAttention
from litebert.model.packing import Boundaries, Mask

FEW = 1024  # pieces, for which one thread is enough
FAR = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Around:
    """What the layers of a graph have in common."""

    encoder: Encoder
    mask: str  # none: every piece sees every other
    attention: dict[int, Rows]  # by its number: what the rows of its first product are multiplied by
    ffn: dict[int, Rows]  # likewise, of its second


def write_trunk(graph: Graph, encoder: Encoder, x: str, apart: Factors, passes: str = "", mask: str = "") -> str:
    """The layers over what `x` names. `passes` names their number where it is an input; one layer that is all there is
    stands in a loop, other plans are written out."""
    config, walk = encoder.config, encoder.trunk
    if mask:
        mask = graph.op("Cast", mask, to=graph.onnx.TensorProto.INT32)
    sides = (apart.attention, apart.ffn) if graph.int8 else ((), ())
    rows = [
        {at: graph.rows(x, factor, config.positions) for at, factor in enumerate(each) if factor != 1} for each in sides
    ]
    around = Around(encoder, mask, *rows)
    if walk.one_pass is None:
        for a, f in walk.plan:
            x = write_layer(graph, around, a, f, x)
        return x
    body = Graph(graph.int8, graph)
    made = "layer_in"
    for a, f in walk.one_pass:
        made = write_layer(body, around, a, f, made)
    return graph.repeat(passes or graph.constant(config.layers), x, body, "layer_in", made, config.hidden_size)


def write_layer(graph: Graph, around: Around, a: int, f: int, x: str) -> str:
    config, trunk = around.encoder.config, around.encoder.trunk
    attention, ffn = cast(SelfAttention, trunk.attention[a]), cast(FeedForward, trunk.ffn[f])
    qkv = graph.product(f"attention.{a}.qkv", attention.qkv, x, rows=around.attention.get(a))
    q, k, v = graph.op("Split", qkv, outputs=3, axis=-1, num_outputs=3)
    bias = graph.weight(f"attention.{a}.qkv.bias", attention.qkv.bias)
    seen = graph.op(
        "MultiHeadAttention",
        *(q, k, v, bias, around.mask),
        domain=MICROSOFT,
        num_heads=config.heads,
        unidirectional=int(config.causal),
        mask_filter_value=FAR,
    )
    out = graph.linear(f"attention.{a}.out", attention.out, seen)
    x = graph.norm(f"attention.{a}.norm", attention.norm, graph.op("Add", out, x))
    inner = graph.activation(config.activation, graph.linear(f"ffn.{f}.up", ffn.up, x))
    down = graph.linear(f"ffn.{f}.down", ffn.down, inner, rows=around.ffn.get(f))
    return graph.norm(f"ffn.{f}.norm", ffn.norm, graph.op("Add", down, x))


def runtime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise UserError("running ONNX needs the package onnxruntime: pip install 'litebert[onnx]'") from None
    return onnxruntime


def open_session(model: bytes | str, threads: int = 0, alone: bool = True) -> Any:
    """`alone`: nothing else computes in this process, so its threads may stay awake between calls; in one call they
    do."""
    library = runtime()
    options = library.SessionOptions()
    options.intra_op_num_threads = threads or torch.get_num_threads()
    if not alone:
        options.add_session_config_entry("session.force_spinning_stop", "1")
    return library.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class Looped:
    """The shared layer in int8, so many passes of it."""

    def __init__(self, encoder: Encoder, apart: Factors) -> None:
        graph, shape = Graph(int8=True), ("batch", "length", encoder.config.hidden_size)
        states = write_trunk(graph, encoder, "states_in", apart, "passes")
        graph.nodes.append(graph.onnx.helper.make_node("Identity", [states], ["states"]))
        self.session = open_session(graph.write({"states_in": shape, "passes": ()}, {"states": shape}), alone=False)

    def __call__(self, x: Tensor, passes: int) -> Tensor:
        return torch.from_numpy(self.session.run(None, {"states_in": x.numpy(), "passes": np.array(passes)})[0])


class Widened(nn.Module):
    """The end of the embeddings, norm and projection. A few pieces go through one thread of onnxruntime's: PyTorch's
    stay awake a while after they worked, on the cores that the layers need next."""

    def __init__(self, tables: Embeddings) -> None:
        super().__init__()
        self.norm, self.project = tables.norm, tables.project
        graph = Graph()
        states = graph.norm("norm", tables.norm, "states_in")
        if tables.project is not None:
            states = graph.linear("project", tables.project, states)
        graph.nodes.append(graph.onnx.helper.make_node("Identity", [states], ["states"]))
        shape: tuple[str, int] = ("pieces", tables.words.embedding_dim)
        self.session = open_session(graph.write({"states_in": shape}, {"states": ("pieces", "wide")}), threads=1)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        if len(rows) > FEW:
            x = self.norm(x).float()
            return x if self.project is None else self.project(x)
        made = self.session.run(None, {"states_in": rows.float().numpy()})[0]
        return torch.from_numpy(made).view(*x.shape[:-1], -1)


def looped(encoder: Encoder, apart: Factors) -> Looped | None:
    """None where there are several layers, or no onnxruntime."""
    held = encoder.config.one_layer and find_spec("onnx") is not None and find_spec("onnxruntime") is not None
    return Looped(encoder, apart) if held else None


def as_batch(x: Tensor, mask: Mask) -> Tensor | None:
    """The states as (B, S, H), if every sequence is as long as the others and sees all of itself."""
    if mask is None:
        return x
    if not isinstance(mask, Boundaries) or (len(mask.offsets) - 1) * mask.longest != len(x):
        return None
    return x.view(-1, mask.longest, x.shape[-1])
