"""Our parameter names <-> the names in published checkpoints, as tables that read both ways.

A row is `ours: (theirs, …)`: where theirs are three (query, key, value), ours is the three stacked in that order.
Rows name modules; `.weight` and `.bias` follow. Published names stand here and in `published.py` only.
"""

from collections.abc import Iterator, Sequence

from litebert.config import HeadConfig, ModelConfig
from litebert.model.encoder import plan_of

Names = dict[str, tuple[str, ...]]

_BERT_LAYER: Names = {
    "attention.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.out": ("attention.output.dense",),
    "attention.norm": ("attention.output.LayerNorm",),
    "ffn.up": ("intermediate.dense",),
    "ffn.down": ("output.dense",),
    "ffn.norm": ("output.LayerNorm",),
}
_LAYERS: dict[str, Names] = {
    "bert": _BERT_LAYER,
    "roberta": _BERT_LAYER,
    "albert": {
        "attention.qkv": ("attention.query", "attention.key", "attention.value"),
        "attention.out": ("attention.dense",),
        "attention.norm": ("attention.LayerNorm",),
        "ffn.up": ("ffn",),
        "ffn.down": ("ffn_output",),
        "ffn.norm": ("full_layer_layer_norm",),
    },
    "distilbert": {
        "attention.qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        "attention.out": ("attention.out_lin",),
        "attention.norm": ("sa_layer_norm",),
        "ffn.up": ("ffn.lin1",),
        "ffn.down": ("ffn.lin2",),
        "ffn.norm": ("output_layer_norm",),
    },
}
_STACKS = {
    "bert": "encoder.layer.{}",
    "roberta": "encoder.layer.{}",
    "albert": "encoder.albert_layer_groups.{}.albert_layers.{}",
    "distilbert": "transformer.layer.{}",
}
_POOLERS = {"bert": "pooler.dense", "roberta": "pooler.dense", "albert": "pooler"}
_HEADS: dict[tuple[str, str], dict[str, str]] = {
    ("albert", "mlm"): {"dense": "predictions.dense", "norm": "predictions.LayerNorm", "": "predictions"},
    ("bert", "mlm"): {
        "dense": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
        "": "cls.predictions",
    },
    ("roberta", "mlm"): {"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "": "lm_head"},
    ("distilbert", "mlm"): {"dense": "vocab_transform", "norm": "vocab_layer_norm", "": "vocab_projector"},
    ("albert", "pair"): {"out": "sop_classifier.classifier"},
    ("bert", "pair"): {"out": "cls.seq_relationship"},
    ("roberta", "classify"): {"dense": "classifier.dense", "out": "classifier.out_proj"},
    ("distilbert", "classify"): {"dense": "pre_classifier", "out": "classifier"},
    ("distilbert", "choice"): {"dense": "pre_classifier", "out": "classifier"},
}
# Tensors that files may hold beside a module's own: copies of tied weights, and buffers of old releases.
_TIED = {
    "albert": {"predictions.decoder.weight": "words", "predictions.decoder.bias": "bias"},
    "bert": {"cls.predictions.decoder.weight": "words", "cls.predictions.decoder.bias": "bias"},
    "roberta": {"lm_head.decoder.weight": "words", "lm_head.decoder.bias": "bias"},
    "distilbert": {"vocab_projector.weight": "words"},
}
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


def hf_names(config: ModelConfig, heads: Sequence[HeadConfig], prefix: str) -> Names:
    """Every parameter of this network as `transformers` names it; `prefix` is '', or 'albert.' and so on."""
    names: Names = {}
    for ours, theirs in _hf_modules(config, heads, prefix):
        if ours == "heads.mlm":  # the output bias stands alone: the matrix is the word table
            names["heads.mlm.bias"] = tuple(f"{part}.bias" for part in theirs)
            continue
        names[f"{ours}.weight"] = tuple(f"{part}.weight" for part in theirs)
        if not ours.startswith(
            ("encoder.embeddings.words", "encoder.embeddings.positions", "encoder.embeddings.types")
        ):
            names[f"{ours}.bias"] = tuple(f"{part}.bias" for part in theirs)
    return names


def _hf_modules(config: ModelConfig, heads: Sequence[HeadConfig], prefix: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    family = config.family
    yield "encoder.embeddings.words", (f"{prefix}embeddings.word_embeddings",)
    yield "encoder.embeddings.positions", (f"{prefix}embeddings.position_embeddings",)
    if config.token_types:
        yield "encoder.embeddings.types", (f"{prefix}embeddings.token_type_embeddings",)
    yield "encoder.embeddings.norm", (f"{prefix}embeddings.LayerNorm",)
    if config.projects:
        yield "encoder.embeddings.project", (f"{prefix}encoder.embedding_hidden_mapping_in",)
    for index in range(weight_sets(config)):
        where = divmod(index, config.inner_groups) if family == "albert" else (index,)
        for ours, theirs in _LAYERS[family].items():
            part, _, rest = ours.partition(".")
            stack = prefix + _STACKS[family].format(*where)
            yield f"encoder.trunk.{part}.{index}.{rest}", tuple(f"{stack}.{name}" for name in theirs)
    if config.pooler:
        yield "encoder.pooler", (prefix + _POOLERS[family],)
    for head in heads:
        for ours, name in head_modules(family, head.kind).items():
            yield f"heads.{head.kind}.{ours}".rstrip("."), (name,)


def weight_sets(config: ModelConfig) -> int:
    """How many layers' weights exist, where attention and feed-forward are shared alike."""
    return len(set(plan_of(config)))


def head_modules(family: str, kind: str) -> dict[str, str]:
    """The modules of a head and their published names; none where `transformers` has no such head."""
    kind = "classify" if kind == "regress" else kind
    usual = {"classify": {"out": "classifier"}, "tag": {"out": "classifier"}, "choice": {"out": "classifier"}}
    return _HEADS.get((family, kind)) or (usual | {"span": {"out": "qa_outputs"}}).get(kind, {})


def tied_copies(family: str) -> dict[str, str]:
    """Published names that repeat another tensor -> our name of the one they must equal."""
    ours = {"words": "encoder.embeddings.words.weight", "bias": "heads.mlm.bias"}
    return {name: ours[kind] for name, kind in _TIED[family].items()}


_TF1_ALBERT_LAYER: Names = {
    "attention.qkv": ("attention_1/self/query", "attention_1/self/key", "attention_1/self/value"),
    "attention.out": ("attention_1/output/dense",),
    "attention.norm": ("LayerNorm",),
    "ffn.up": ("ffn_1/intermediate/dense",),
    "ffn.down": ("ffn_1/intermediate/output/dense",),
    "ffn.norm": ("LayerNorm_1",),
}


_TF1_SPAN_BEAM = {
    "start": "start_logits/dense",
    "end_dense": "end_logits/dense_0",
    "end_norm": "end_logits/LayerNorm",
    "end": "end_logits/dense_1",
    "answer_dense": "answer_class/dense_0",
    "answer": "answer_class/dense_1",
}


def tf1_names(config: ModelConfig, heads: Sequence[HeadConfig]) -> Names:
    """The same for Google's TF1 variables of ALBERT and BERT. Those that end in `kernel` are transposed."""
    names: Names = {
        "encoder.embeddings.words.weight": ("bert/embeddings/word_embeddings",),
        "encoder.embeddings.positions.weight": ("bert/embeddings/position_embeddings",),
        "encoder.embeddings.types.weight": ("bert/embeddings/token_type_embeddings",),
    }

    def module(ours: str, theirs: Sequence[str]) -> None:
        weight, bias = ("gamma", "beta") if ours.endswith("norm") else ("kernel", "bias")
        names[f"{ours}.weight"] = tuple(f"{part}/{weight}" for part in theirs)
        names[f"{ours}.bias"] = tuple(f"{part}/{bias}" for part in theirs)

    module("encoder.embeddings.norm", ["bert/embeddings/LayerNorm"])
    if config.projects:
        module("encoder.embeddings.project", ["bert/encoder/embedding_hidden_mapping_in"])
    for index in range(weight_sets(config)):
        if config.family == "albert":
            group, inner = divmod(index, config.inner_groups)
            stack, layer = f"bert/encoder/transformer/group_{group}/inner_group_{inner}", _TF1_ALBERT_LAYER
        else:
            stack = f"bert/encoder/layer_{index}"
            layer = {ours: tuple(name.replace(".", "/") for name in theirs) for ours, theirs in _BERT_LAYER.items()}
        for ours, theirs in layer.items():
            part, _, rest = ours.partition(".")
            module(f"encoder.trunk.{part}.{index}.{rest}", [f"{stack}/{name}" for name in theirs])
    if config.pooler:
        module("encoder.pooler", ["bert/pooler/dense"])
    for head in heads:
        if head.kind == "mlm":
            module("heads.mlm.dense", ["cls/predictions/transform/dense"])
            module("heads.mlm.norm", ["cls/predictions/transform/LayerNorm"])
            names["heads.mlm.bias"] = ("cls/predictions/output_bias",)
        elif head.kind == "span-beam":
            for ours, name in _TF1_SPAN_BEAM.items():
                module(f"heads.span-beam.{ours}", [name])
            del names["heads.span-beam.answer.bias"]
        else:
            where = {"pair": "cls/seq_relationship/", "span": "cls/squad/"}.get(head.kind, "")
            names[f"heads.{head.kind}.out.weight"] = (f"{where}output_weights",)  # stored (labels, H), as ours
            names[f"heads.{head.kind}.out.bias"] = (f"{where}output_bias",)
    return names
