"""An encoder whose layers are all one -> an ONNX graph that runs that layer in a loop, and onnxruntime to run it.

Where sequences are equally long onnxruntime's int8 is quicker than oneDNN's through PyTorch: most of all for a single
short text, where a call of PyTorch costs more than its work. There float32 is quicker as well; on a CPU
whose best is AVX2 it is for every size (`litebert bench infer`).
"""

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.config import UserError
from litebert.infer.cpu import finest, has_avx2_only
from litebert.infer.first import Factors
from litebert.infer.graph import MICROSOFT, Graph, Rows
from litebert.model.encoder import Encoder
from litebert.model.layers import FeedForward, SelfAttention
from litebert.model.packing import Boundaries

FEW = 32  # pieces, up to which float32 gains by it, but for a CPU whose best is AVX2
SMALL = 1 << 24  # numbers of a layer, up to which float32 is worth keeping a second time for that
FAR = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Around:
    """What the layers of a graph have in common."""

    encoder: Encoder
    mask: str  # none: every piece sees every other
    attention: dict[int, Rows]  # by its number: what the rows of its first product are multiplied by
    ffn: dict[int, Rows]  # likewise, of its second


def write_embeddings(graph: Graph, encoder: Encoder, words: str, places: str) -> str:
    """What `words` names, rows of the word table, and what `places` counts -> what goes into the first layer."""
    tables = encoder.embeddings
    rows = graph.op("Gather", graph.weight("positions", tables.positions.weight), places)
    x = graph.op("Add", words, rows)
    if tables.types is not None:
        x = graph.op("Add", x, graph.op("Gather", graph.weight("types", tables.types.weight), "token_type_ids"))
    x = graph.norm("embeddings.norm", tables.norm, x)
    return x if tables.project is None else graph.linear("embeddings.project", tables.project, x, exact=True)


def write_places(graph: Graph, batch: str) -> str:
    """0, 1, 2, … for what `batch` names, of (batch, length, …)."""
    length = graph.op("Gather", graph.op("Shape", batch), graph.constant(1))
    return str(graph.op("Range", graph.constant(0), length, graph.constant(1)))


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
    """An encoder for sequences that are equally long. The rows of the word table come in: it is large, and stays where
    it is."""

    def __init__(self, encoder: Encoder, int8: bool, apart: Factors) -> None:
        config, graph = encoder.config, Graph(int8, compact=False, finest=finest())
        self.words = encoder.embeddings.words.weight.detach()
        self.several = has_avx2_only()  # lengths in one batch
        self.longest, self.most = config.positions, sys.maxsize if int8 or self.several else FEW
        wide: tuple[str, str, int] = ("batch", "length", config.embedding_size)
        inputs: dict[str, Any] = {"states_in": wide, "passes": ()}
        if config.token_types:
            inputs["token_type_ids"] = wide[:2]
        x = write_embeddings(graph, encoder, "states_in", write_places(graph, "states_in"))
        states = write_trunk(graph, encoder, x, apart, "passes")
        graph.nodes.append(graph.onnx.helper.make_node("Identity", [states], ["states"]))
        made = graph.write(inputs, {"states": (*wide[:2], config.hidden_size)})
        self.typed, self.session = bool(config.token_types), open_session(made, alone=False)

    def takes(
        self, input_ids: Tensor, types: Tensor | None, boundaries: Boundaries | None
    ) -> list[tuple[int, int]] | None:
        """The sizes of the parts in which a batch goes this way, each of equally long sequences that stand together:
        several only where the CPU's best is AVX2, since elsewhere one packed row is as quick. None: it goes another
        way, or something is amiss with it."""
        if types is not None and types.shape != input_ids.shape:
            return None
        if boundaries is None:
            parts = [(len(input_ids), input_ids.shape[1])] if input_ids.dim() == 2 else []
        else:
            parts = [(len(list(same)), length) for length, same in groupby(boundaries.lengths) if length]
            if boundaries.places.shape != input_ids.shape:
                return None
        fits = 0 < sum(rows * length for rows, length in parts) == input_ids.numel() <= self.most
        fits = fits and max(length for _, length in parts) <= self.longest
        return parts if fits and (len(parts) == 1 or self.several) else None

    def __call__(self, input_ids: Tensor, token_type_ids: Tensor | None, passes: int) -> Tensor:
        """Of (batch, length)."""
        given = {"states_in": F.embedding(input_ids, self.words).float().numpy(), "passes": np.array(passes)}
        if self.typed:
            types = np.zeros(input_ids.shape, np.int64) if token_type_ids is None else token_type_ids.long().numpy()
            given["token_type_ids"] = types
        return torch.from_numpy(self.session.run(None, given)[0])


def looped(encoder: Encoder, precision: str, apart: Factors) -> Looped | None:
    """None where it would gain nothing or cost too much, where there are several layers, where places are counted in
    another way, or without onnxruntime."""
    config = encoder.config
    size = sum(each.numel() for each in encoder.trunk.parameters())
    gains = precision == "int8" or (precision == "fp32" and size <= SMALL)
    suits = gains and config.one_layer and not config.position_offset
    held = suits and find_spec("onnx") is not None and find_spec("onnxruntime") is not None
    return Looped(encoder, precision == "int8", apart) if held else None
