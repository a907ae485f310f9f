"""Google's TF1 checkpoints, written by tensorflow itself inside the test."""

import json
import sys

import pytest
import torch

from litebert.config import HeadConfig, UserError
from litebert.model.names import tf1_names
from litebert.model.tf1 import convert_tf1
from litebert.model.weights import build

SLOTS = {"albert": ("lamb_m", "lamb_v"), "bert": ("adam_m", "adam_v")}
HEADS = {
    "pre-trained": [HeadConfig(kind="mlm"), HeadConfig(kind="pair")],
    "classifier": [HeadConfig(kind="classify", labels=("LABEL_0", "LABEL_1", "LABEL_2"), dropout=0.1)],
    "regression": [HeadConfig(kind="regress", dropout=0.1)],
    "span": [HeadConfig(kind="span")],
    "span-beam": [HeadConfig(kind="span-beam", dropout=0.1)],
    "bare": [],
}


@pytest.fixture(scope="session")
def tensorflow():
    return pytest.importorskip("tensorflow", reason="TF1 conversion needs tensorflow: pip install 'litebert[tf]'")


def tf1_config(config):
    data = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.ffn_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "max_position_embeddings": config.positions,
        "type_vocab_size": config.token_types,
        "hidden_act": "gelu",
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "initializer_range": config.init_std,
    }
    if config.family == "albert":
        data |= {
            "embedding_size": config.embedding_size,
            "num_hidden_groups": config.groups,
            "inner_group_num": config.inner_groups,
            "net_structure_type": 0,
            "gap_size": 0,
            "down_scale_factor": 1,
        }
    return data


def write_tf1(tensorflow, network, folder, extra=(), leave_out=None):
    """Variables as Google's graph names and shapes them, their optimizer slots and the step, in a real checkpoint."""
    v1 = tensorflow.compat.v1
    state = network.state_dict()
    with v1.Graph().as_default(), v1.Session() as session:
        for ours, theirs in tf1_names(network.config, network.head_configs).items():
            for name, part in zip(theirs, state[ours].chunk(len(theirs)), strict=True):
                if name == leave_out:
                    continue
                value = part.T.numpy() if name.endswith("/kernel") else part.numpy()
                v1.get_variable(name, initializer=value)
                for slot in SLOTS[network.config.family]:
                    v1.get_variable(f"{name}/{slot}", initializer=value * 0 + 7)
        for name in extra:
            v1.get_variable(name, initializer=[1.0])
        v1.get_variable("global_step", initializer=125000)
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(folder / "model.ckpt-best"))
    (folder / f"{network.config.family}_config.json").write_text(json.dumps(tf1_config(network.config)))


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("albert", {}),
        ("albert", {"groups": 2, "inner_groups": 2}),
        ("albert", {"embedding_size": 32}),
        ("bert", {"layers": 3}),
    ],
)
def test_a_tf1_checkpoint_converts_exactly_heads_included_slots_ignored(
    tensorflow, family, more, heads, small, tmp_path
):
    config = small(family, activation="gelu_tanh", dropout=0.1, **more)
    network = build(config, HEADS[heads], seed=3).eval()
    write_tf1(tensorflow, network, tmp_path)
    back = convert_tf1(tmp_path)
    assert back.config == network.config
    assert back.head_configs == network.head_configs
    ours, theirs = network.state_dict(), back.state_dict()
    assert set(ours) == set(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_an_activation_can_be_said_where_the_config_is_wrong(tensorflow, small, tmp_path):
    network = build(small("bert", layers=1, activation="gelu"))
    write_tf1(tensorflow, network, tmp_path)
    assert convert_tf1(tmp_path).config.activation == "gelu_tanh"
    assert convert_tf1(tmp_path, "gelu").config.activation == "gelu"


def test_a_bare_output_layer_is_what_it_is_said_to_be(tensorflow, small, tmp_path):
    network = build(small("albert"), [HeadConfig(kind="choice", dropout=0.1)], seed=3)
    write_tf1(tensorflow, network, tmp_path)
    assert convert_tf1(tmp_path).head_configs[0].kind == "regress"
    assert convert_tf1(tmp_path, head="choice").head_configs == network.head_configs


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hidden_size": 32.0}, "_size takes a whole number, not 32.0"),
        ({"hidden_act": []}, r"hidden_act \[\] is not one of gelu, relu"),
        ({"num_hidden_layers": None}, "layers takes a whole number, not None"),
    ],
)
def test_a_tf1_config_that_is_wrong_is_one_clear_line(tensorflow, change, sentence, small, tmp_path):
    write_tf1(tensorflow, build(small("bert", layers=1)), tmp_path)
    config = json.loads((tmp_path / "bert_config.json").read_text())
    (tmp_path / "bert_config.json").write_text(json.dumps(config | change))
    with pytest.raises(UserError, match=sentence):
        convert_tf1(tmp_path)


def test_an_unknown_or_missing_variable_is_named(tensorflow, small, tmp_path):
    network = build(small("bert", layers=1))
    (tmp_path / "a").mkdir()
    write_tf1(tensorflow, network, tmp_path / "a", extra=["bert/something/new"])
    with pytest.raises(UserError, match="holds the tensor bert/something/new, which this model has no place for"):
        convert_tf1(tmp_path / "a")
    (tmp_path / "b").mkdir()
    write_tf1(tensorflow, network, tmp_path / "b", leave_out="bert/encoder/layer_0/output/dense/bias")
    with pytest.raises(UserError, match="lacks the tensor bert/encoder/layer_0/output/dense/bias"):
        convert_tf1(tmp_path / "b")


def test_a_truncated_tf1_checkpoint_is_one_clear_line(tensorflow, small, tmp_path):
    write_tf1(tensorflow, build(small("bert", layers=1)), tmp_path)
    index = tmp_path / "model.ckpt-best.index"
    index.write_bytes(index.read_bytes()[:40])
    with pytest.raises(UserError, match="truncated or corrupted") as problem:
        convert_tf1(tmp_path)
    assert "\n" not in str(problem.value)


def test_without_tensorflow_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    monkeypatch.setitem(sys.modules, "tensorflow.train", None)
    (tmp_path / "albert_config.json").write_text("{}")
    with pytest.raises(UserError, match=r"pip install 'litebert\[tf\]'"):
        convert_tf1(tmp_path)


def test_a_folder_without_a_config_says_what_was_looked_for(tmp_path):
    with pytest.raises(UserError, match=r"holds neither albert_config\.json nor bert_config\.json"):
        convert_tf1(tmp_path)
