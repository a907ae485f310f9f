"""Google's original TF1 checkpoints of ALBERT and BERT -> a `Network`. Needs tensorflow (`pip install litebert[tf]`).

In: a folder with `albert_config.json` or `bert_config.json` and `model.ckpt-*.{index,data-…}`. All variables are
accounted for: the encoder's, the masked-LM and pair heads', a classifier's or a span head's; optimizer slots are not.
"""

import re
from pathlib import Path
from typing import Any

import torch

from litebert.config import HeadConfig, ModelConfig, UserError
from litebert.model.heads import Network
from litebert.model.names import tf1_names
from litebert.model.published import State, gather
from litebert.model.weights import fill, read_json

_SLOT = re.compile(
    r"/(adam|lamb)_[mv](_\d+)?$|/Adam(_1)?$|^global_step$|^beta[12]_power$|^_CHECKPOINTABLE_OBJECT_GRAPH$"
)
_ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu"}  # Google's gelu is the tanh approximation


def convert_tf1(folder: Path, activation: str | None = None) -> Network:
    """`activation` overrides the config: BERT's own first release computed gelu with erf, later ones with tanh."""
    config_file = next((folder / n for n in ("albert_config.json", "bert_config.json") if (folder / n).is_file()), None)
    if config_file is None:
        raise UserError(f"{folder} holds neither albert_config.json nor bert_config.json")
    state = read_variables(folder)
    config, heads = _configs(read_json(config_file), state, str(config_file), activation)
    names = tf1_names(config, heads)
    for name, tensor in state.items():
        if name.endswith("/kernel"):
            state[name] = tensor.T.contiguous()
    return fill(config, heads, gather(names, state, str(folder)), str(folder))


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
        raise UserError(f"{indices[0]} is truncated or corrupted: {str(problem).splitlines()[0]}") from None


def _configs(
    data: dict[str, Any], state: State, where: str, activation: str | None
) -> tuple[ModelConfig, list[HeadConfig]]:
    albert = "embedding_size" in data
    act = data.get("hidden_act", "gelu")
    if activation is None and act not in _ACTIVATIONS:
        raise UserError(f"{where}: hidden_act {act!r} is not one of {', '.join(_ACTIVATIONS)}")

    def number(key: str, default: Any = None) -> Any:
        value = data.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise UserError(f"{where}: {key} takes a number, not {value!r}")
        return value

    try:
        config = ModelConfig(
            family="albert" if albert else "bert",
            vocab_size=number("vocab_size"),
            embedding_size=number("embedding_size") if albert else number("hidden_size"),
            hidden_size=number("hidden_size"),
            ffn_size=number("intermediate_size"),
            layers=number("num_hidden_layers"),
            heads=number("num_attention_heads"),
            sharing="all" if albert else "none",
            groups=number("num_hidden_groups", 1),
            inner_groups=number("inner_group_num", 1),
            positions=number("max_position_embeddings"),
            token_types=number("type_vocab_size"),
            activation=activation or _ACTIVATIONS[act],  # type: ignore[arg-type]
            dropout=number("hidden_dropout_prob", 0.0),
            attention_dropout=number("attention_probs_dropout_prob", 0.0),
            init_std=number("initializer_range", 0.02),
            pooler="bert/pooler/dense/kernel" in state,
        )
    except UserError as problem:
        raise UserError(f"{where}: {problem}" if where not in str(problem) else str(problem)) from None
    heads = []
    if "cls/predictions/output_bias" in state:
        heads.append(HeadConfig(kind="mlm"))
    if "cls/seq_relationship/output_weights" in state:
        heads.append(HeadConfig(kind="pair"))
    if "cls/squad/output_weights" in state:
        heads.append(HeadConfig(kind="span"))
    if "output_weights" in state:
        outputs = state["output_weights"].shape[0]
        labels = tuple(f"LABEL_{i}" for i in range(outputs))
        kind_is_number = outputs == 1
        heads.append(
            HeadConfig(kind="regress", dropout=0.1)
            if kind_is_number
            else HeadConfig(kind="classify", labels=labels, dropout=0.1)
        )
    return config, heads
