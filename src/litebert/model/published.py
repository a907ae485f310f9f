"""Published checkpoints in and out: a `config.json` and tensors under the names `transformers` uses <-> ours.

Nothing here touches a file; `weights.py` reads and writes them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, get_args

import torch
from torch import Tensor

from litebert.config import Family, HeadConfig, HeadKind, ModelConfig, UserError
from litebert.model.encoder import plan_of
from litebert.model.names import BUFFERS, Names, head_modules, hf_names, tied_copies

State = dict[str, Tensor]
MOST_LABELS = 1 << 16

# ours -> theirs, and what `transformers` assumes where a file leaves it out (None: the file must say it)
_KEYS: dict[str, tuple[str, Any]] = {
    "vocab_size": ("vocab_size", None),
    "hidden_size": ("hidden_size", None),
    "ffn_size": ("intermediate_size", None),
    "layers": ("num_hidden_layers", None),
    "heads": ("num_attention_heads", None),
    "positions": ("max_position_embeddings", None),
    "token_types": ("type_vocab_size", 2),
    "norm_eps": ("layer_norm_eps", 1e-12),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "init_std": ("initializer_range", 0.02),
    "pad_id": ("pad_token_id", 0),
}
_ALBERT_KEYS = _KEYS | {
    "embedding_size": ("embedding_size", 128),
    "groups": ("num_hidden_groups", 1),
    "inner_groups": ("inner_group_num", 1),
    "dropout": ("hidden_dropout_prob", 0.0),
    "attention_dropout": ("attention_probs_dropout_prob", 0.0),
}
_DISTILBERT_KEYS: dict[str, tuple[str, Any]] = {
    "vocab_size": ("vocab_size", None),
    "hidden_size": ("dim", None),
    "ffn_size": ("hidden_dim", None),
    "layers": ("n_layers", None),
    "heads": ("n_heads", None),
    "positions": ("max_position_embeddings", None),
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.1),
    "init_std": ("initializer_range", 0.02),
    "pad_id": ("pad_token_id", 0),
}
_ROBERTA_KEYS = _KEYS | {"pad_id": ("pad_token_id", 1)}
_FAMILY_KEYS = {"albert": _ALBERT_KEYS, "bert": _KEYS, "roberta": _ROBERTA_KEYS, "distilbert": _DISTILBERT_KEYS}
_NUMBERS = {"norm_eps", "dropout", "attention_dropout", "init_std"}
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
_CLASSES = {"albert": "Albert", "bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert"}
_ARCHITECTURES: dict[str, tuple[HeadKind, ...]] = {
    "Model": (),
    "ForMaskedLM": ("mlm",),
    "ForPreTraining": ("mlm", "pair"),
    "ForNextSentencePrediction": ("pair",),
    "ForSequenceClassification": ("classify",),
    "ForTokenClassification": ("tag",),
    "ForQuestionAnswering": ("span",),
    "ForMultipleChoice": ("choice",),
}


@dataclass(frozen=True)
class Published:
    """A checkpoint as other software reads it."""

    config: dict[str, Any]
    tensors: State
    notes: tuple[str, ...]  # what had to be said another way


def read_config(data: Mapping[str, Any], names: set[str], where: str) -> tuple[ModelConfig, tuple[HeadConfig, ...]]:
    """A `config.json` and the names of the tensors beside it -> our configs.

    The tensors have the last word on the pooler and on masked-LM and pair heads: the best-known BERT file calls itself
    `BertForMaskedLM` and holds all three.
    """
    family = str(data.get("model_type"))
    if family not in get_args(Family):
        raise UserError(f"{where}: model_type {family!r} is not one of {', '.join(get_args(Family))}")
    if data.get("position_embedding_type", "absolute") != "absolute":
        raise UserError(
            f"{where}: position_embedding_type {data['position_embedding_type']!r}; only 'absolute' is known"
        )
    if data.get("is_decoder") or data.get("add_cross_attention"):
        raise UserError(f"{where}: a decoder; litebert reads encoders")
    values: dict[str, Any] = {"family": family}
    for ours, (theirs, default) in _FAMILY_KEYS[family].items():
        values[ours] = _value(data, theirs, default, where, number=ours in _NUMBERS)
    act = data.get(
        "activation" if family == "distilbert" else "hidden_act", "gelu_new" if family == "albert" else "gelu"
    )
    if not isinstance(act, str) or act not in _ACTIVATIONS:
        raise UserError(f"{where}: activation {act!r} is not one of {', '.join(_ACTIVATIONS)}")
    prefix = name_prefix(family, names)
    pooler = family != "distilbert" and any(name.startswith(f"{prefix}pooler.") for name in names)
    values |= {"activation": _ACTIVATIONS[act], "pooler": pooler}
    if family == "albert":
        values |= {"sharing": "all", "projection": "always"}
    else:
        values |= {"sharing": "none", "embedding_size": values["hidden_size"]}
    if family == "roberta":  # the table holds two rows that no piece uses, before the first position
        values["position_offset"] = values["pad_id"] + 1
        values["positions"] -= values["position_offset"]
    if family == "distilbert":
        values["token_types"] = 0
    try:
        config = ModelConfig(**values)
        return config, _heads(data, config, names, where)
    except UserError as problem:
        raise UserError(str(problem) if where in str(problem) else f"{where}: {problem}") from None


def name_prefix(family: str, names: set[str]) -> str:
    return f"{family}." if any(name.startswith(f"{family}.") for name in names) else ""


def _value(data: Mapping[str, Any], key: str, default: Any, where: str, number: bool) -> Any:
    value = data.get(key, default)
    if value is None:
        value = default
    if value is None:
        raise UserError(f"{where} lacks {key!r}")
    wanted = int | float if number else int
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise UserError(f"{where}: {key} takes a {'number' if number else 'whole number'}, not {value!r}")
    return value


def _heads(data: Mapping[str, Any], config: ModelConfig, names: set[str], where: str) -> tuple[HeadConfig, ...]:
    kinds: set[HeadKind] = set()
    architectures = data.get("architectures") or []
    if not isinstance(architectures, list):
        raise UserError(f"{where}: architectures takes a list of names, not {architectures!r}")
    for name in architectures:
        suffix = str(name).removeprefix(_CLASSES[config.family])
        if suffix not in _ARCHITECTURES:
            known = ", ".join(_CLASSES[config.family] + known for known in _ARCHITECTURES)
            raise UserError(f"{where}: architecture {name!r} is not one of {known}")
        kinds |= set(_ARCHITECTURES[suffix])
    for kind in ("mlm", "pair"):
        modules = head_modules(config.family, kind)
        if modules and any(f"{module}.bias" in names for module in modules.values()):
            kinds.add(kind)
    labels = _labels(data, where) if kinds & {"classify", "tag"} else ()
    several = data.get("problem_type") == "multi_label_classification"
    if "classify" in kinds and (data.get("problem_type") == "regression" or (len(labels) == 1 and not several)):
        kinds = kinds - {"classify"} | {"regress"}
        labels = () if labels == ("LABEL_0",) else labels
    heads = []
    for kind in sorted(kinds):
        key, default = _dropout_key(config, kind)
        rate = _value(data, key, default, where, number=True) if key else 0.0
        named = labels if kind in ("classify", "tag", "regress") else ()
        heads.append(HeadConfig(kind=kind, labels=named, several=several and kind == "classify", dropout=rate))
    return tuple(heads)


def _dropout_key(config: ModelConfig, kind: HeadKind) -> tuple[str, float]:
    """Where their config keeps the dropout of a head of this kind, '' if nowhere, and what stands for a missing one."""
    if kind == "mlm":
        return "", 0.0
    if config.family == "albert":
        return ("", 0.0) if kind == "span" else ("classifier_dropout_prob", 0.1)
    if config.family == "distilbert":
        return {"span": ("qa_dropout", 0.1), "tag": ("dropout", 0.1)}.get(kind, ("seq_classif_dropout", 0.2))
    return ("", 0.0) if kind in ("pair", "span") else ("classifier_dropout", config.dropout)


def _labels(data: Mapping[str, Any], where: str) -> tuple[str, ...]:
    table = data.get("id2label")
    if table is None:
        count = _value(data, "num_labels", 2, where, number=False)
        if not 1 <= count <= MOST_LABELS:
            raise UserError(f"{where}: num_labels = {count} is not between 1 and {MOST_LABELS}")
        return tuple(f"LABEL_{i}" for i in range(count))
    if not isinstance(table, Mapping):
        raise UserError(f"{where}: id2label takes a table of numbers and names, not {table!r}")
    try:
        names = {int(key): str(value) for key, value in table.items()}
        return tuple(names[i] for i in range(len(names)))
    except (ValueError, KeyError):
        raise UserError(f"{where}: id2label must name labels 0 to {len(table) - 1}") from None


def read_tensors(
    config: ModelConfig, heads: Sequence[HeadConfig], tensors: Mapping[str, Tensor], where: str
) -> tuple[ModelConfig, State]:
    """Published tensors -> our state. Every tensor is used once, or is a known copy, or is named in an error."""
    prefix = name_prefix(config.family, set(tensors))
    names = hf_names(config, heads, prefix)
    copies = {name: ours for name, ours in tied_copies(config.family).items() if "heads.mlm.bias" in names}
    state = gather(names, tensors, where, known={*copies, *(prefix + name for name in BUFFERS)})
    for name, ours in copies.items():
        if name in tensors and not torch.equal(tensors[name], state[ours]):
            raise UserError(f"{where}: {name} differs from the tensor it is tied to; litebert models tie the two")
    if config.family == "albert" and config.embedding_size == config.hidden_size:
        weight, bias = (state[f"encoder.embeddings.project.{part}"] for part in ("weight", "bias"))
        square = weight.shape == (config.hidden_size, config.hidden_size)
        if square and not bias.any() and torch.equal(weight, torch.eye(config.hidden_size, dtype=weight.dtype)):
            # `transformers` has no model without it, so it was written as the identity
            state = {name: tensor for name, tensor in state.items() if ".project." not in name}
            config = replace(config, projection="where-needed")
    return config, state


def gather(names: Names, tensors: Mapping[str, Tensor], where: str, known: set[str] | None = None) -> State:
    """Their tensors under our names, stacked where several of theirs are one of ours."""
    wanted = {name for parts in names.values() for name in parts}
    missing = sorted(wanted - set(tensors))
    if missing:
        raise UserError(f"{where} lacks the tensor {missing[0]}{_and_more(missing)}")
    extra = sorted(set(tensors) - wanted - (known or set()))
    if extra:
        raise UserError(
            f"{where} holds the tensor {plain(extra[0])}{_and_more(extra)}, which this model has no place for"
        )
    state: State = {}
    for ours, parts in names.items():
        found = [tensors[name] for name in parts]
        if len({(part.shape, part.dtype) for part in found}) > 1:
            shapes = ", ".join(f"{list(part.shape)}" for part in found)
            raise UserError(f"{where}: {parts[0]} and its neighbours differ in shape or type: {shapes}")
        state[ours] = found[0] if len(found) == 1 else torch.cat(found)
    return state


def plain(name: str) -> str:
    """A name from a stranger's file, fit for one line of a terminal."""
    return name if name.isprintable() and len(name) <= 200 else repr(name[:200])


def _and_more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""


def publish(config: ModelConfig, heads: Sequence[HeadConfig], state: State) -> Published:
    """Our state -> what `transformers` loads with no missing and no unexpected key, and the same outputs."""
    notes: list[str] = []
    config, state = _sayable(config, state, notes)
    config = _pooler_as_theirs(config, heads, notes)
    if config.family == "albert" and not config.projects:
        size, like = config.hidden_size, state["encoder.embeddings.words.weight"].dtype
        eye = {"weight": torch.eye(size, dtype=like), "bias": torch.zeros(size, dtype=like)}
        state = state | {f"encoder.embeddings.project.{part}": tensor for part, tensor in eye.items()}
        notes.append("the E-to-H projection, which transformers always has, is written as the identity")
    config = replace(config, projection="always") if config.family == "albert" else config
    data = _config_json(config, heads)
    tensors: State = {}
    for ours, theirs in hf_names(config, heads, f"{config.family}." if heads else "").items():
        for name, part in zip(theirs, state[ours].chunk(len(theirs)), strict=True):
            tensors[name] = part.contiguous()
    back, back_heads = read_config(data, set(tensors), "the exported config")
    for field in fields(config):
        if getattr(back, field.name) != getattr(config, field.name):
            raise UserError(f"transformers' {config.family} cannot say {field.name} = {getattr(config, field.name)!r}")
    for head, read in zip(sorted(heads, key=lambda head: head.kind), back_heads, strict=True):
        for field in fields(head):
            said, meant = getattr(read, field.name), getattr(head, field.name)
            if said != meant:
                notes.append(
                    f"transformers reads {field.name} {said!r} for the {head.kind} head, where ours is {meant!r}"
                )
    return Published(data, tensors, tuple(notes))


def _pooler_as_theirs(config: ModelConfig, heads: Sequence[HeadConfig], notes: list[str]) -> ModelConfig:
    """Each of their classes has a pooler or has none, whatever the model that comes in has."""
    kinds = {head.kind for head in heads}
    pooled: set[str] = {"pair", "choice"} if config.family == "roberta" else {"pair", "choice", "classify", "regress"}
    wanted = config.family != "distilbert" and (not kinds or bool(kinds & pooled))
    if config.pooler and not wanted:
        notes.append("the pooler has no place in that class of transformers and is left out; without heads it is kept")
    if wanted and not config.pooler:
        notes.append("there is no pooler to write: transformers starts one anew unless told add_pooling_layer=False")
    return replace(config, pooler=config.pooler and wanted)


def _sayable(config: ModelConfig, state: State, notes: list[str]) -> tuple[ModelConfig, State]:
    """The same function in a configuration `transformers` has: plans it cannot say become copies."""
    if config.family != "albert" and config.embedding_size != config.hidden_size:
        raise UserError(f"{config.family} in transformers has no factorised embeddings; family 'albert' has them")
    if config.family == "albert":
        theirs = [int(layer / (config.layers / config.groups)) for layer in range(config.layers)]  # as it computes it
        ours = [layer * config.groups // config.layers for layer in range(config.layers)]
        if config.sharing == "all" and theirs == ours:
            return config, state
        why = f"sharing {config.sharing!r}" if config.sharing != "all" else f"{config.groups} groups of {config.layers}"
        if config.sharing != "none":
            notes.append(f"transformers cannot say {why}: every layer is written out, as the equal model with copies")
        wide, state = unshare(config, state)
        return replace(wide, sharing="all", groups=config.layers), state
    if config.sharing != "none" or config.inner_groups > 1:
        if config.sharing != "none":
            notes.append(
                f"transformers cannot say a {config.family} with sharing {config.sharing!r}: "
                "every layer is written out, as the equal model with copies"
            )
        config, state = unshare(config, state)
        config = replace(config, layers=config.depth, inner_groups=1)
    return config, state


def unshare(config: ModelConfig, state: State) -> tuple[ModelConfig, State]:
    """The equal model whose layers each have weights of their own."""
    wide = {name: tensor for name, tensor in state.items() if not name.startswith("encoder.trunk.")}
    for layer, (a, f) in enumerate(plan_of(config)):
        for part, index in (("attention", a), ("ffn", f)):
            stem = f"encoder.trunk.{part}.{index}."
            for name, tensor in state.items():
                if name.startswith(stem):
                    wide[f"encoder.trunk.{part}.{layer}.{name.removeprefix(stem)}"] = tensor.clone()
    return replace(config, sharing="none", groups=1), wide


def _config_json(config: ModelConfig, heads: Sequence[HeadConfig]) -> dict[str, Any]:
    kinds = {head.kind for head in heads}
    wanted = {"classify" if kind == "regress" else kind for kind in kinds}
    suffix = next((name for name, found in _ARCHITECTURES.items() if set(found) == wanted), None)
    if suffix is None or not all(head_modules(config.family, kind) for kind in kinds):
        raise UserError(f"transformers has no {config.family} with the heads {', '.join(sorted(kinds))} together")
    data: dict[str, Any] = {"architectures": [_CLASSES[config.family] + suffix], "model_type": config.family}
    for ours, (theirs, _) in _FAMILY_KEYS[config.family].items():
        data[theirs] = getattr(config, ours)
    activation = next(theirs for theirs, ours in _ACTIVATIONS.items() if ours == config.activation)
    data["activation" if config.family == "distilbert" else "hidden_act"] = activation
    data["max_position_embeddings"] = config.positions + config.position_offset
    for head in heads:
        labels = head.labels or (("LABEL_0",) if head.kind == "regress" else ())
        if labels:
            data["id2label"] = {str(i): name for i, name in enumerate(labels)}
            data["label2id"] = {name: i for i, name in enumerate(labels)}
        if head.kind == "regress" or head.several:
            data["problem_type"] = "multi_label_classification" if head.several else "regression"
        key, _ = _dropout_key(config, head.kind)
        if key and key != "dropout":  # DistilBERT's taggers have none of their own
            data[key] = head.dropout
    return data
