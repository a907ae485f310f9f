"""A `Network` -> an ONNX graph: padded batch in, the logits of every head out.

Where one layer is all there is, it is written once and run in a loop, and the number of passes can be an input. Other
plans are written out layer by layer over weights that are stored once each.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from torch import nn

from litebert.config import ModelConfig, UserError
from litebert.infer.cpu import WITH_WHOLE_SUMS
from litebert.infer.first import Ends, factors
from litebert.infer.graph import Graph
from litebert.infer.loop import FAR, write_embeddings, write_places, write_trunk
from litebert.model.heads import MaskedLM, Network, Pieces, Sentence, SpanBeam, sentence_shape

BATCH: tuple[str | int, ...] = ("batch", "length")
BEAM = 5


def write_network(network: Network, passes: bool, int8: bool, ends: Ends | None = None) -> bytes:
    """`passes`: how often the shared layer runs is an input of the graph. `ends`: the pieces that texts begin and end
    with, which int8 minds."""
    config, graph = network.config, Graph(int8)
    inputs: dict[str, Sequence[str | int]] = {"input_ids": BATCH, "attention_mask": BATCH}
    if config.token_types:
        inputs["token_type_ids"] = BATCH
    if passes:
        if not config.one_layer:
            raise UserError("passes can be an input where all layers are the same one (sharing 'all', 1 group)")
        inputs["passes"] = ()
    x = embeddings(graph, network)
    apart = factors(network.encoder, ends if int8 else None)
    states = write_trunk(graph, network.encoder, x, apart, "passes" if passes else "", "attention_mask")
    outputs: dict[str, Sequence[str | int]] = {}
    if not network.heads:
        name(graph, states, "states", outputs, (*BATCH, config.hidden_size))
    for kind, head in network.heads.items():
        for label, value, shape in answers(graph, network, kind, head, states, inputs):
            name(graph, value, label, outputs, shape)
    return graph.write(inputs, outputs)


def name(graph: Graph, value: str, label: str, outputs: dict[str, Any], shape: Sequence[str | int]) -> None:
    graph.nodes.append(graph.onnx.helper.make_node("Identity", [value], [label]))
    outputs[label] = shape


def embeddings(graph: Graph, network: Network) -> str:
    encoder, tables = network.encoder, network.encoder.embeddings
    if graph.int8:  # a row of the word table has a step of its own
        multiplied = "mlm" in network.heads  # by the table, in whole numbers; else its rows are only looked up
        graph.rough("words", tables.words.weight, False, graph.finest if multiplied else WITH_WHOLE_SUMS)
        row = graph.op("Cast", graph.op("Gather", "words.int8", "input_ids"), to=graph.onnx.TensorProto.FLOAT)
        step = graph.op("Unsqueeze", graph.op("Gather", "words.scale", "input_ids"), graph.constant([-1]))
        x = graph.op("Mul", row, step)
    else:
        x = graph.op("Gather", graph.weight("words", tables.words.weight), "input_ids")
    return write_embeddings(graph, encoder, x, positions(graph, encoder.config))


def positions(graph: Graph, config: ModelConfig) -> str:
    if config.position_offset:  # RoBERTa counts the pieces that are not padding
        pad = graph.op("Equal", "input_ids", graph.constant(config.pad_id))
        real = graph.op("Cast", graph.op("Not", pad), to=graph.onnx.TensorProto.INT64)
        counted = graph.op("Mul", graph.op("CumSum", real, graph.constant(1)), real)
        return str(graph.op("Add", counted, graph.constant(config.position_offset - 1)))
    return write_places(graph, "input_ids")


Answer = tuple[str, str, tuple[str | int, ...]]  # its name, the node that gives it, its shape


def answers(
    graph: Graph, network: Network, kind: str, head: nn.Module, states: str, inputs: dict[str, Sequence[str | int]]
) -> list[Answer]:
    if isinstance(head, MaskedLM):
        return [("mlm", masked(graph, network, head, states), (*BATCH, network.config.vocab_size))]
    if isinstance(head, Pieces):
        scores = graph.linear(f"{kind}.out", head.out, states, exact=True)
        return [(kind, scores, (*BATCH, head.out.out_features))]
    if isinstance(head, SpanBeam):
        inputs["allowed"] = BATCH
        return beam(graph, head, states)
    assert isinstance(head, Sentence)
    reads, dense = sentence_shape(network.config, cast(Any, kind))
    sentence = first(graph, states)
    if reads == "pooled":
        pooler = network.encoder.pooler
        assert pooler is not None
        sentence = graph.op("Tanh", graph.linear("pooler", pooler, sentence, exact=True))
    if head.dense is not None and dense is not None:
        sentence = graph.activation(dense, graph.linear(f"{kind}.dense", head.dense, sentence, exact=True))
    return [(kind, graph.linear(f"{kind}.out", head.out, sentence, exact=True), ("batch", head.out.out_features))]


def first(graph: Graph, states: str) -> str:
    return str(graph.op("Gather", states, graph.constant(0), axis=1))


def masked(graph: Graph, network: Network, head: MaskedLM, states: str) -> str:
    config, words = network.config, network.encoder.embeddings.words.weight
    activation = "gelu" if config.family == "roberta" else config.activation
    x = graph.activation(activation, graph.linear("mlm.dense", head.dense, states, exact=True))
    x, bias = graph.norm("mlm.norm", head.norm, x), graph.weight("mlm.bias", head.bias)
    if graph.int8:  # turned once, when the file is read
        table = graph.op("Transpose", "words.int8", perm=[1, 0])
        return graph.quantised(x, table, "words.scale", bias)
    rows = graph.op("Reshape", x, graph.constant([-1, config.embedding_size]))
    logits = graph.op("Gemm", rows, graph.weight("words", words), bias, transB=1)
    size = graph.op("Concat", graph.op("Shape", "input_ids"), graph.constant([config.vocab_size]), axis=0)
    return str(graph.op("Reshape", logits, size))


def beam(graph: Graph, head: SpanBeam, states: str) -> list[Answer]:
    """The likeliest starts, and for each its likeliest ends: `SpanBeam.beam`."""
    allowed = graph.op("Cast", "allowed", to=graph.onnx.TensorProto.BOOL)
    far, last, zero = graph.constant(FAR, np.float32), graph.constant([-1]), graph.constant([0])
    length = graph.op("Gather", graph.op("Shape", "input_ids"), graph.constant([1]))
    many = graph.op("Min", length, graph.constant([BEAM]))
    scores = graph.op("Squeeze", graph.linear("beam.start", head.start, states, exact=True), last)
    start = graph.op("Where", allowed, scores, far)  # (B, S)
    best, at = graph.op("TopK", graph.op("LogSoftmax", start, axis=-1), many, outputs=2)  # (B, K)
    wide = graph.op("Unsqueeze", at, last)
    full = graph.op("Shape", states)
    width = graph.op("Gather", full, graph.constant([2]))
    index = graph.op("Expand", wide, graph.op("Concat", graph.op("Shape", at), width, axis=0))
    chosen = graph.op(
        "Unsqueeze", graph.op("GatherElements", states, index, axis=1), graph.constant([2])
    )  # (B, K, 1, H)
    batch = graph.op("Gather", full, zero)
    shape = graph.op("Concat", batch, many, length, width, axis=0)
    every = graph.op("Expand", graph.op("Unsqueeze", states, graph.constant([1])), shape)  # (B, K, S, H)
    both = graph.op("Concat", every, graph.op("Expand", chosen, shape), axis=-1)
    x = graph.op("Tanh", graph.linear("beam.end_dense", head.end_dense, both, exact=True))
    x = graph.linear("beam.end", head.end, graph.norm("beam.end_norm", head.end_norm, x), exact=True)
    end = graph.op("Where", graph.op("Unsqueeze", allowed, graph.constant([1])), graph.op("Squeeze", x, last), far)
    end_best, end_at = graph.op("TopK", graph.op("LogSoftmax", end, axis=-1), many, outputs=2)  # (B, K, K)
    share = graph.op("Unsqueeze", graph.op("Softmax", start, axis=-1), graph.constant([1]))  # (B, 1, S)
    weighted = graph.op("Squeeze", graph.op("MatMul", share, states), graph.constant([1]))
    x = graph.op("Concat", weighted, first(graph, states), axis=-1)
    x = graph.op("Tanh", graph.linear("beam.answer_dense", head.answer_dense, x, exact=True))
    nothing = graph.op("Squeeze", graph.linear("beam.answer", head.answer, x, exact=True), last)
    starts, ends = ("batch", "starts"), ("batch", "starts", "ends")
    return [
        ("start", best, starts),
        ("start_at", at, starts),
        ("end", end_best, ends),
        ("end_at", end_at, ends),
        ("no_answer", nothing, ("batch",)),
    ]
