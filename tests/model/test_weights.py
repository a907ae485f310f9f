"""Folders in and out: the identity through `transformers`, and one clear line for every broken or hostile file."""

import json
import pickle
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from litebert.config import HeadConfig, UserError
from litebert.model.published import publish
from litebert.model.weights import build, export_network, load_network, save_network
from tests.model.test_parity import CLASSES, HAVE, HEADS, peer

transformers = pytest.importorskip("transformers")


def same(ours, other):
    a, b = ours.state_dict(), other.state_dict()
    assert list(a) == list(b)
    for name, tensor in a.items():
        assert tensor.dtype == b[name].dtype
        assert torch.equal(tensor, b[name]), name


WITH_DROPOUT = {
    ("albert", "ForSequenceClassification"): [HeadConfig(kind="classify", labels=("a", "b"), dropout=0.3)],
    ("bert", "ForSequenceClassification"): [HeadConfig(kind="classify", labels=("a",), several=True, dropout=0.3)],
    ("roberta", "ForSequenceClassification"): [HeadConfig(kind="regress", labels=("score",), dropout=0.25)],
    ("distilbert", "ForSequenceClassification"): [HeadConfig(kind="regress", dropout=0.4)],
    ("distilbert", "ForQuestionAnswering"): [HeadConfig(kind="span", dropout=0.3)],
    ("albert", "ForMultipleChoice"): [HeadConfig(kind="choice", dropout=0.2)],
    ("roberta", "ForTokenClassification"): [HeadConfig(kind="tag", labels=("O", "B"), dropout=0.2)],
    ("albert", "ForPreTraining"): [HeadConfig(kind="mlm"), HeadConfig(kind="pair", dropout=0.1)],
}


@pytest.mark.parametrize(("family", "suffix"), [*HAVE, *((family, "Model") for family in CLASSES)])
def test_save_transformers_save_load_is_the_identity(family, suffix, small, tmp_path):
    pooled = suffix in ("Model", "ForMultipleChoice", "ForPreTraining", "ForNextSentencePrediction") or (
        suffix == "ForSequenceClassification" and family != "roberta"
    )
    config = small(family, pooler=pooled and family != "distilbert")
    network = build(config, WITH_DROPOUT.get((family, suffix)) or HEADS.get(suffix, []), seed=5)
    model = peer(network, suffix, tmp_path / "ours")
    model.save_pretrained(tmp_path / "theirs")
    back, _ = load_network(tmp_path / "theirs")
    same(network, back)
    ours, theirs = load_file(tmp_path / "ours/model.safetensors"), load_file(tmp_path / "theirs/model.safetensors")
    assert set(ours) == set(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert replace(back.config, projection="where-needed") == replace(config, projection="where-needed")
    assert sorted(back.head_configs, key=str) == sorted(network.head_configs, key=str)


def test_a_projection_that_only_transformers_has_is_the_identity_and_dropped_again(small, tmp_path):
    network = build(small(embedding_size=32), seed=1)
    assert network.encoder.embeddings.project is None
    notes = export_network(network, tmp_path)
    assert any("identity" in note for note in notes)
    written = load_file(tmp_path / "model.safetensors")["encoder.embedding_hidden_mapping_in.weight"]
    assert torch.equal(written, torch.eye(32))
    back, _ = load_network(tmp_path)
    assert back.config == network.config
    same(network, back)


def test_a_real_projection_between_equal_widths_survives(small, tmp_path):
    network = build(small(embedding_size=32, projection="always"), seed=1)
    export_network(network, tmp_path)
    back, _ = load_network(tmp_path)
    assert back.config == network.config
    same(network, back)


@pytest.mark.parametrize("sharing", ["attention", "ffn"])
def test_plans_that_transformers_cannot_say_are_written_with_copies_and_that_is_said(sharing, small, tmp_path):
    network = build(small(sharing=sharing), seed=1)
    notes = export_network(network, tmp_path)
    assert any(f"cannot say sharing '{sharing}'" in note and "copies" in note for note in notes)
    tensors = load_file(tmp_path / "model.safetensors")
    stem = "encoder.albert_layer_groups.{}.albert_layers.0.{}.weight"
    part = "attention.query" if sharing == "attention" else "ffn"
    assert torch.equal(tensors[stem.format(0, part)], tensors[stem.format(3, part)])


def test_groups_that_their_rounding_would_misplace_are_written_with_copies(small):
    config = small(layers=22, groups=22)
    assert [int(layer / (22 / 22)) for layer in range(22)] == list(range(22))
    misplaced = [
        (layers, groups)
        for layers in range(1, 50)
        for groups in range(1, layers + 1)
        if [int(layer / (layers / groups)) for layer in range(layers)]
        != [layer * groups // layers for layer in range(layers)]
    ]
    assert misplaced  # otherwise the branch under test is dead
    layers, groups = misplaced[0]
    network = build(replace(config, layers=layers, groups=groups), seed=1)
    published = publish(network.config, (), network.state_dict())
    assert published.config["num_hidden_groups"] == layers
    assert any("copies" in note for note in published.notes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_our_own_folder_gives_back_the_same_bytes(dtype, small, tmp_path):
    network = build(small(sharing="ffn", groups=2), [HeadConfig(kind="span-beam", dropout=0.1)], seed=1)
    save_network(network, tmp_path / "a", dtype)
    back, stored = load_network(tmp_path / "a")
    assert stored == dtype
    assert back.config == network.config
    assert back.head_configs == network.head_configs
    save_network(back, tmp_path / "b", stored)
    for name in ("model.safetensors", "litebert.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def published_bert(small, folder, **more):
    network = build(small("bert", layers=2, **more), [HeadConfig(kind="mlm"), HeadConfig(kind="pair")], seed=1)
    export_network(network, folder)
    return network


def test_sharded_folders_and_the_weights_only_loader_give_the_same_model(small, tmp_path):
    network = published_bert(small, tmp_path / "whole")
    tensors = load_file(tmp_path / "whole/model.safetensors")
    config = (tmp_path / "whole/config.json").read_bytes()
    for name in ("shards", "bin"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_bytes(config)
    torch.save(tensors, tmp_path / "bin/pytorch_model.bin")
    shard(tensors, tmp_path / "shards")
    for name in ("shards", "bin"):
        same(network, load_network(tmp_path / name)[0])


def shard(tensors, folder):
    half = sorted(tensors)[: len(tensors) // 2]
    parts = {
        "model-00001-of-00002.safetensors": {n: tensors[n] for n in half},
        "model-00002-of-00002.safetensors": {n: t for n, t in tensors.items() if n not in half},
    }
    for name, part in parts.items():
        save_file(part, folder / name)
    index = {"weight_map": {n: file for file, part in parts.items() for n in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return index


def test_files_with_the_names_and_copies_of_old_releases_load(small, tmp_path):
    network = published_bert(small, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
           for name, tensor in tensors.items()}  # fmt: skip
    old["bert.embeddings.position_ids"] = torch.arange(40)[None]
    old["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    old["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
    (tmp_path / "model.safetensors").unlink()
    torch.save(old, tmp_path / "pytorch_model.bin")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    back, _ = load_network(tmp_path)
    same(network, back)
    old["cls.predictions.decoder.weight"] += 1
    torch.save(old, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"cls\.predictions\.decoder\.weight differs from the tensor it is tied to"):
        load_network(tmp_path)


# ---- broken and hostile files: each has its own sentence ----


def edit(folder, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def drop(name):
    return lambda tensors: tensors.pop(name)


def put(name, tensor):
    return lambda tensors: tensors.update({name: tensor})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (drop("bert.pooler.dense.bias"), r"lacks the tensor bert\.pooler\.dense\.bias$"),
        (drop("bert.encoder.layer.1.output.dense.weight"), r"lacks the tensor bert\.encoder\.layer\.1\.output\.dense"),
        (
            put("bert.extra.weight", torch.zeros(3)),
            r"holds the tensor bert\.extra\.weight, which this model has no place",
        ),
        (
            put("bert.encoder.layer.2.output.dense.weight", torch.zeros(3)),
            r"holds the tensor bert\.encoder\.layer\.2\.output\.dense\.weight",
        ),
        (
            put("bert.pooler.dense.weight", torch.zeros(32, 31)),
            r"encoder\.pooler\.weight is \[32, 31\] and should be \[32, 32\]",
        ),
        (
            put("bert.encoder.layer.0.attention.self.key.weight", torch.zeros(32, 9)),
            r"bert\.encoder\.layer\.0\.attention\.self\.query\.weight and its neighbours differ in shape",
        ),
        (put("cls.predictions.bias", torch.zeros(99, dtype=torch.int64)), r"holds torch\.int64, not floating-point"),
    ],
)
def test_a_missing_extra_or_misshapen_tensor_is_named(change, sentence, small, tmp_path):
    published_bert(small, tmp_path)
    edit(tmp_path, change)
    with pytest.raises(UserError, match=sentence) as problem:
        load_network(tmp_path)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize("keep", [0, 5, 100, 5000])
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_truncated_file_is_one_clear_line(name, keep, small, tmp_path):
    published_bert(small, tmp_path)
    if name == "pytorch_model.bin":
        torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / name)
        (tmp_path / "model.safetensors").unlink()
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:keep])
    with pytest.raises(UserError, match="corrupted") as problem:
        load_network(tmp_path)
    assert "\n" not in str(problem.value)


def test_a_header_that_lies_about_its_size_is_one_clear_line(small, tmp_path):
    published_bert(small, tmp_path)
    content = bytearray((tmp_path / "model.safetensors").read_bytes())
    content[:8] = (2**62).to_bytes(8, "little")
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(UserError, match="truncated or corrupted"):
        load_network(tmp_path)


class Evil:
    def __reduce__(self):
        return (open, ("owned", "w"))


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("how", ["torch.save", "pickle"])
def test_a_pickle_with_code_in_it_is_refused_and_not_run(how, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    published_bert(small, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with open(tmp_path / "pytorch_model.bin", "wb") as file:
        torch.save({"a": Evil()}, file) if how == "torch.save" else pickle.dump({"a": Evil()}, file)
    with pytest.raises(UserError, match="only tensors are unpickled") as problem:
        load_network(tmp_path)
    assert "\n" not in str(problem.value)
    assert not (tmp_path / "owned").exists()


def test_a_pickle_of_something_else_is_refused(small, tmp_path):
    published_bert(small, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save([1, 2], tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match="is not a table of tensors"):
        load_network(tmp_path)


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", "..\\x.safetensors", ".."])
def test_an_index_cannot_lead_out_of_its_folder(name, small, tmp_path):
    published_bert(small, tmp_path)
    save_file({"x": torch.zeros(1)}, tmp_path.parent / "secret.safetensors")
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name}}))
    with pytest.raises(UserError, match="only files beside it are read"):
        load_network(tmp_path)


def broken_index(folder, change):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    index = shard(tensors, folder)
    change(index["weight_map"])
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda m: m.update(new="model-00003-of-00003.safetensors"),
            "names model-00003-of-00003.safetensors, which is not",
        ),
        (
            lambda m: m.update(new="model-00001-of-00002.safetensors"),
            "lacks the tensor new, which the index places there",
        ),
        (
            lambda m: m.pop("cls.predictions.bias"),
            "holds the tensor cls.predictions.bias, which the index does not place",
        ),
        (lambda m: m.update(new="weights.txt"), "neither .safetensors nor .bin"),
        (lambda m: m.update(new=7), "has no weight_map of names to files"),
    ],
)
def test_an_index_that_disagrees_with_its_shards_is_one_clear_line(change, sentence, small, tmp_path):
    published_bert(small, tmp_path)
    broken_index(tmp_path, change)
    with pytest.raises(UserError, match=sentence):
        load_network(tmp_path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2' is not one of albert, bert, roberta, distilbert"),
        ({"hidden_size": "768"}, "hidden_size takes a whole number, not '768'"),
        ({"hidden_size": None}, "lacks 'hidden_size'"),
        ({"num_attention_heads": 5}, "hidden_size = 32 does not divide into heads = 5; the nearest is 4"),
        ({"hidden_size": 2**40}, "_size = 1099511627776 is more than the 16777216 allowed"),
        ({"hidden_size": 2**20, "num_attention_heads": 1}, "should be"),
        ({"num_hidden_layers": 10**12}, "layers = 1000000000000 is more than the 16777216 allowed"),
        ({"num_hidden_layers": 5000}, "inner_groups = 5000 is more than the 4096 allowed"),
        ({"num_hidden_layers": -1}, "layers = -1 must be at least 1"),
        ({"hidden_act": "mish"}, "activation 'mish' is not one of gelu"),
        ({"position_embedding_type": "relative_key"}, "only 'absolute' is known"),
        ({"is_decoder": True}, "a decoder; litebert reads encoders"),
        ({"architectures": ["BertForGodKnows"]}, "architecture 'BertForGodKnows' is not one of BertModel"),
    ],
)
def test_a_config_that_is_wrong_is_one_clear_line(change, sentence, small, tmp_path):
    published_bert(small, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(UserError, match=sentence) as problem:
        load_network(tmp_path)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
@pytest.mark.parametrize("name", ["config.json", "litebert.json"])
def test_a_config_that_is_not_a_json_object_is_one_clear_line(name, content, small, tmp_path):
    published_bert(small, tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=r"not readable JSON|not a JSON object") as problem:
        load_network(tmp_path)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": 99}, "format 99; this version of litebert reads 1"),
        ({"model": {"family": "albert", "heds": 3}}, "unknown key 'heds' in .model.; did you mean 'heads'?"),
        ({"model": None}, "needs a table 'model'"),
        ({"heads": [{"kind": "mlmm"}]}, "heads.kind = 'mlmm'; did you mean 'mlm'?"),
    ],
)
def test_our_own_config_is_read_strictly(change, sentence, small, tmp_path):
    save_network(build(small()), tmp_path)
    config = json.loads((tmp_path / "litebert.json").read_text())
    (tmp_path / "litebert.json").write_text(json.dumps(config | change))
    with pytest.raises(UserError, match=sentence):
        load_network(tmp_path)


def test_folders_without_a_model_say_what_was_looked_for(tmp_path):
    with pytest.raises(UserError, match="no folder"):
        load_network(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"holds neither litebert\.json nor config\.json"):
        load_network(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(UserError, match=r"holds no weights; looked for model\.safetensors, "):
        load_network(tmp_path)


def test_writing_where_nothing_can_be_written_is_one_line_and_leaves_the_old_file(small, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UserError, match="cannot write"):
        save_network(build(small()), tmp_path / "file")
    assert (tmp_path / "file").read_text() == "not a folder"


@pytest.mark.parametrize(
    ("config", "heads", "sentence"),
    [
        ({"family": "bert", "embedding_size": 16}, [], "bert in transformers has no factorised embeddings"),
        ({"causal": True}, [], "cannot say causal = True"),
        ({"family": "distilbert", "norm_eps": 1e-5}, [], "transformers' distilbert cannot say norm_eps = 1e-05"),
        ({}, [HeadConfig(kind="span-beam")], "transformers has no albert with the heads span-beam together"),
        (
            {},
            [HeadConfig(kind="span"), HeadConfig(kind="tag", labels=("a",))],
            "transformers has no albert with the heads span, tag together",
        ),
    ],
)
def test_what_transformers_cannot_say_at_all_is_refused(config, heads, sentence, small):
    network = build(small(**({"family": "albert"} | config)), heads)
    with pytest.raises(UserError, match=sentence):
        publish(network.config, network.head_configs, network.state_dict())


def test_what_transformers_reads_otherwise_is_said(small):
    tagger = build(small("distilbert"), [HeadConfig(kind="tag", labels=("a", "b"), dropout=0.3)])
    notes = publish(tagger.config, tagger.head_configs, tagger.state_dict()).notes
    assert any("reads dropout 0.0 for the tag head, where ours is 0.3" in note for note in notes)
    single = build(small("albert"), [HeadConfig(kind="classify", labels=("spam",))])
    notes = publish(single.config, single.head_configs, single.state_dict()).notes
    assert any("'regress'" in note and "'classify'" in note for note in notes)


def test_a_folder_of_the_other_kind_is_not_written_over(small, tmp_path):
    network = build(small())
    save_network(network, tmp_path / "ours")
    export_network(network, tmp_path / "theirs")
    with pytest.raises(UserError, match=r"holds a model of another kind \(litebert\.json\); choose another folder"):
        export_network(network, tmp_path / "ours")
    with pytest.raises(UserError, match=r"holds a model of another kind \(config\.json\)"):
        save_network(network, tmp_path / "theirs")
    for folder in ("ours", "theirs"):
        load_network(tmp_path / folder)


def test_a_write_that_fails_midway_leaves_no_half_model(small, tmp_path, monkeypatch):
    import litebert.files

    save_network(build(small(), seed=1), tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(litebert.files.os, "fsync", fail)
    with pytest.raises(UserError, match="No space left on device"):
        save_network(build(small(), seed=2), tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert not [file for file in tmp_path.iterdir() if "partial" in file.name]


def test_float64_files_stay_float64_and_mixed_ones_become_float32(small, tmp_path):
    network = build(small()).double()
    save_network(network, tmp_path / "a")
    back, stored = load_network(tmp_path / "a")
    assert stored == torch.float64
    same(network, back)
    edit(tmp_path / "a", lambda t: t.update({n: v.half() for n, v in t.items() if "norm" in n}))
    back, stored = load_network(tmp_path / "a")
    assert stored == torch.float32
    assert {parameter.dtype for parameter in back.parameters()} == {torch.float32}


def test_query_key_and_value_must_be_of_one_shape_and_type(small, tmp_path):
    published_bert(small, tmp_path)
    stem = "bert.encoder.layer.0.attention.self"
    edit(
        tmp_path,
        lambda t: t.update({f"{stem}.query.weight": torch.zeros(16, 32), f"{stem}.key.weight": torch.zeros(48, 32)}),
    )
    with pytest.raises(UserError, match=r"differ in shape or type: \[16, 32\], \[48, 32\], \[32, 32\]"):
        load_network(tmp_path)
    edit(
        tmp_path,
        lambda t: t.update(
            {f"{stem}.query.weight": torch.zeros(32, 32), f"{stem}.key.weight": torch.zeros(32, 32, dtype=torch.int64)}
        ),
    )
    with pytest.raises(UserError, match="differ in shape or type"):
        load_network(tmp_path)


@pytest.mark.parametrize("name", ["lm_head.decoder.weight", "vocab_projector.weight", "predictions.decoder.bias"])
def test_another_familys_copies_are_not_let_in(name, small, tmp_path):
    published_bert(small, tmp_path)
    edit(tmp_path, put(name, torch.zeros(5)))
    with pytest.raises(UserError, match="which this model has no place for"):
        load_network(tmp_path)


def test_a_name_with_control_characters_cannot_write_on_the_terminal(small, tmp_path):
    published_bert(small, tmp_path)
    edit(tmp_path, put("a\nlitebert: all is well\x1b[31m", torch.zeros(5)))
    with pytest.raises(UserError) as problem:
        load_network(tmp_path)
    assert str(problem.value).isprintable()


def strange_tensors():
    yield "expanded", torch.zeros(1).expand(32, 32)
    yield "meta", torch.zeros(32, 32, device="meta")
    yield "sparse", torch.zeros(32, 32).to_sparse()


@pytest.mark.parametrize(
    ("kind", "tensor"), list(strange_tensors()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_pickled_tensor_must_be_plain_and_whole(kind, tensor, small, tmp_path):
    published_bert(small, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors") | {"bert.pooler.dense.weight": tensor}
    (tmp_path / "model.safetensors").unlink()
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"is not a plain tensor with all its numbers in the file|corrupted"):
        load_network(tmp_path)


@pytest.mark.parametrize(
    ("family", "change", "sentence"),
    [
        ("bert", {"num_labels": 10**8}, "num_labels = 100000000 is not between 1 and 65536"),
        ("bert", {"num_labels": "abc"}, "num_labels takes a whole number, not 'abc'"),
        ("bert", {"classifier_dropout": "x"}, "classifier_dropout takes a number, not 'x'"),
        ("bert", {"classifier_dropout": [1]}, "classifier_dropout takes a number"),
        ("bert", {"architectures": 3}, "architectures takes a list of names, not 3"),
        ("bert", {"hidden_act": []}, r"activation \[\] is not one of gelu"),
        ("bert", {"type_vocab_size": 2**62}, "token_types = 4611686018427387904 is more than"),
        ("bert", {"layer_norm_eps": 10**400}, "norm_eps takes a number, not one so large"),
        ("bert", {"layer_norm_eps": float("inf")}, "norm_eps takes a number, not inf"),
        ("bert", {"initializer_range": float("nan")}, "init_std takes a number, not nan"),
        ("bert", {"id2label": {"0": "a", "5": "b"}}, "id2label must name labels 0 to 1"),
        ("bert", {"id2label": 3}, "id2label takes a table of numbers and names, not 3"),
        ("albert", {"embedding_size": 2**20, "hidden_size": 2**20}, "should be|differ in shape"),
    ],
)
def test_a_classifiers_config_that_is_wrong_is_one_clear_line(family, change, sentence, small, tmp_path):
    network = build(small(family, layers=1), [HeadConfig(kind="classify", labels=("LABEL_0", "LABEL_1"))], seed=1)
    export_network(network, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config.pop("id2label")
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(UserError, match=sentence) as problem:
        load_network(tmp_path)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize("family", ["albert", "distilbert"])
def test_a_null_dropout_means_the_default_as_it_does_in_transformers(family, small, tmp_path):
    network = build(small(family), [HeadConfig(kind="classify", labels=("a", "b"), dropout=0.3)], seed=1)
    export_network(network, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    key = "classifier_dropout_prob" if family == "albert" else "seq_classif_dropout"
    (tmp_path / "config.json").write_text(json.dumps(config | {key: None}))
    assert load_network(tmp_path)[0].head_configs[0].dropout == (0.1 if family == "albert" else 0.2)


def test_a_roberta_that_does_not_name_its_padding_pads_with_one(small, tmp_path):
    export_network(build(small("roberta"), seed=1), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config.pop("pad_token_id")
    (tmp_path / "config.json").write_text(json.dumps(config))
    back, _ = load_network(tmp_path)
    assert (back.config.pad_id, back.config.position_offset, back.config.positions) == (1, 2, 40)


def test_a_pooler_in_a_distilbert_file_is_named(small, tmp_path):
    export_network(build(small("distilbert"), seed=1), tmp_path)
    edit(tmp_path, put("pooler.dense.weight", torch.zeros(32, 32)))
    with pytest.raises(UserError, match=r"holds the tensor pooler\.dense\.weight"):
        load_network(tmp_path)


def test_random_damage_is_always_one_line(small, tmp_path):
    import random

    published_bert(small, tmp_path, vocab_size=20, hidden_size=8, embedding_size=8, ffn_size=8, positions=8)
    tensors = load_file(tmp_path / "model.safetensors")
    whole = {"model.safetensors": (tmp_path / "model.safetensors").read_bytes()}
    for name, old in (("pytorch_model.bin", False), ("legacy.bin", True)):
        torch.save(tensors, tmp_path / name, _use_new_zipfile_serialization=not old)
        whole[name] = (tmp_path / name).read_bytes()
        (tmp_path / name).unlink()
    (tmp_path / "model.safetensors").unlink()
    draw = random.Random(0)
    for name, content in whole.items():
        path = tmp_path / ("pytorch_model.bin" if name == "legacy.bin" else name)
        for _ in range(60):
            damaged = bytearray(content)
            for _ in range(draw.randint(1, 8)):
                damaged[draw.randrange(min(len(damaged), 4000))] = draw.randrange(256)
            path.write_bytes(damaged)
            with suppress(UserError):  # a byte of a weight may change unseen; anything else must be this
                load_network(tmp_path)
        path.unlink()
