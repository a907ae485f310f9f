"""Google's original TF1 checkpoints of ALBERT and BERT -> a `Network`. Needs tensorflow (`pip install litebert[tf]`).

In: a folder with `albert_config.json` or `bert_config.json` and `model.ckpt-*.{index,data-…}`. All variables are
accounted for: the encoder's, the masked-LM and pair heads', a classifier's or a span head's; optimizer slots are not.
"""

import re
from pathlib import Path
from typing import Any

import torch

from litebert.config import HeadConfig, HeadKind, ModelConfig, UserError
from litebert.files import first_line, read_json
from litebert.model.heads import Network
from litebert.model.names import tf1_names
from litebert.model.published import State, gather
from litebert.model.weights import fill

_SLOT = re.compile(
    r"/(adam|lamb)_[mv](_\d+)?$|/Adam(_1)?$|^global_step$|^beta[12]_power$|^_CHECKPOINTABLE_OBJECT_GRAPH$"
)
_ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu"}  # Google's gelu is the tanh approximation


def convert_tf1(folder: Path, activation: str | None = None, head: HeadKind | None = None) -> Network:
    """What the files cannot say may be said: `activation` where the config is wrong (BERT's first release computed gelu
    with erf, later ones with tanh), `head` for a bare output layer (classify, regress, or choice as RACE's)."""
    config_file = next((folder / n for n in ("albert_config.json", "bert_config.json") if (folder / n).is_file()), None)
    if config_file is None:
        raise UserError(f"{folder} holds neither albert_config.json nor bert_config.json")
    state = read_variables(folder)
    config = _config(read_json(config_file), state, str(config_file), activation)
    heads = _heads(state, head)
    for name, tensor in state.items():
        if name.endswith("/kernel"):
            state[name] = tensor.T.contiguous()
    return fill(config, heads, gather(tf1_names(config, heads), state, str(folder)), str(folder))


def read_variables(folder: Path) -> State:
    """Every variable that is not an optimizer slot."""
    try:
        from tensorflow.train import load_checkpoint  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise UserError("TF1 checkpoints need tensorflow; install it with: pip install 'litebert[tf]'") from None
    indices = sorted(folder.glob("*.index"))
    if len(indices) != 1:
        raise UserError(f"{folder} holds {len(indices)} *.index files; a TF1 checkpoint has one")
    try:
        reader = load_checkpoint(str(indices[0].with_suffix("")))
        names = [name for name in reader.get_variable_to_shape_map() if not _SLOT.search(name)]
        return {name: torch.from_numpy(reader.get_tensor(name)).float() for name in names}
    except Exception as problem:  # noqa: BLE001  tensorflow raises its own tree of errors, loaded only here
        raise UserError(f"{indices[0]} is truncated or corrupted: {first_line(problem)}") from None


def _config(data: dict[str, Any], state: State, where: str, activation: str | None) -> ModelConfig:
    albert = "embedding_size" in data
    act = data.get("hidden_act", "gelu")
    if activation is None and (not isinstance(act, str) or act not in _ACTIVATIONS):
        raise UserError(f"{where}: hidden_act {act!r} is not one of {', '.join(_ACTIVATIONS)}")
    try:
        return ModelConfig(
            family="albert" if albert else "bert",
            vocab_size=_given(data, "vocab_size"),
            embedding_size=_given(data, "embedding_size" if albert else "hidden_size"),
            hidden_size=_given(data, "hidden_size"),
            ffn_size=_given(data, "intermediate_size"),
            layers=_given(data, "num_hidden_layers"),
            heads=_given(data, "num_attention_heads"),
            sharing="all" if albert else "none",
            groups=data.get("num_hidden_groups", 1),
            inner_groups=data.get("inner_group_num", 1),
            positions=_given(data, "max_position_embeddings"),
            token_types=_given(data, "type_vocab_size"),
            activation=activation or _ACTIVATIONS[act],  # type: ignore[arg-type]
            dropout=data.get("hidden_dropout_prob", 0.0),
            attention_dropout=data.get("attention_probs_dropout_prob", 0.0),
            init_std=data.get("initializer_range", 0.02),
            pooler="bert/pooler/dense/kernel" in state,
        )
    except UserError as problem:
        raise UserError(f"{where}: {problem}") from None


def _given(data: dict[str, Any], key: str) -> Any:
    if key not in data:
        raise UserError(f"no {key!r}")
    return data[key]


def _heads(state: State, said: HeadKind | None) -> list[HeadConfig]:
    """What the variables show. A bare `output_weights` is a classifier or, with one output, a number, unless said."""
    signs: dict[str, HeadKind] = {
        "cls/predictions/output_bias": "mlm",
        "cls/seq_relationship/output_weights": "pair",
        "cls/squad/output_weights": "span",
    }
    heads = [HeadConfig(kind=kind) for sign, kind in signs.items() if sign in state]
    if "answer_class/dense_0/kernel" in state:
        heads.append(HeadConfig(kind="span-beam", dropout=0.1))
    if "output_weights" in state:
        outputs = state["output_weights"].shape[0]
        kind: HeadKind = said or ("classify" if outputs > 1 else "regress")
        labels = tuple(f"LABEL_{i}" for i in range(outputs)) if kind == "classify" else ()
        heads.append(HeadConfig(kind=kind, labels=labels, dropout=0.1))
    elif said is not None:
        raise UserError(f"this checkpoint has no bare output layer that could be a {said} head")
    return heads
