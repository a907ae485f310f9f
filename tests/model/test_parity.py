"""The same numbers as `transformers`: states, pooled output, every head, every gradient, every family, every plan."""

import json

import pytest
import torch

from litebert.config import HeadConfig
from litebert.model.encoder import attention_maps
from litebert.model.published import publish
from litebert.model.weights import build, export_network

transformers = pytest.importorskip("transformers")

LABELS = ("no", "maybe", "yes")
HEADS = {
    "ForMaskedLM": [HeadConfig(kind="mlm")],
    "ForPreTraining": [HeadConfig(kind="mlm"), HeadConfig(kind="pair")],
    "ForNextSentencePrediction": [HeadConfig(kind="pair")],
    "ForSequenceClassification": [HeadConfig(kind="classify", labels=LABELS)],
    "ForTokenClassification": [HeadConfig(kind="tag", labels=LABELS)],
    "ForQuestionAnswering": [HeadConfig(kind="span")],
    "ForMultipleChoice": [HeadConfig(kind="choice")],
}
CLASSES = {"albert": "Albert", "bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert"}
HAVE = [
    (family, suffix)
    for family in CLASSES
    for suffix in HEADS
    if suffix not in ("ForPreTraining", "ForNextSentencePrediction")
    or (family, suffix)
    in [("albert", "ForPreTraining"), ("bert", "ForPreTraining"), ("bert", "ForNextSentencePrediction")]
]
PLANS = [
    {"groups": 1},
    {"groups": 2},
    {"groups": 4},
    {"groups": 1, "inner_groups": 2},
    {"groups": 2, "inner_groups": 2},
    {"embedding_size": 32},
    {"embedding_size": 32, "projection": "always"},
    {"sharing": "none"},
    {"sharing": "attention"},
    {"sharing": "ffn", "groups": 2},
]


def peer(network, suffix, folder, **more):
    """The same network as a `transformers` model, and the assertion that it took every tensor and missed none."""
    export_network(network, folder)
    cls = getattr(transformers, CLASSES[network.config.family] + suffix)
    model, info = cls.from_pretrained(folder, output_loading_info=True, **more)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    return model


def inputs(ids, mask, config):
    given = {"input_ids": ids, "attention_mask": mask}
    if config.token_types == 2:
        given["token_type_ids"] = (torch.arange(ids.shape[1]) > 3).long().expand_as(ids) * mask
    return given


def close(ours, theirs, mask=None, tolerance=1e-5):
    if mask is not None:
        ours, theirs = ours[mask.bool()], theirs[mask.bool()]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


def compare_gradients(network, model, relative=1e-4, absolute=1e-7):
    """Ours under their names against theirs, a tensor at a time: the error's norm, or its largest element."""
    gradients = build(network.config, network.head_configs).to(next(network.parameters()).dtype)
    with torch.no_grad():
        for mine, parameter in zip(gradients.parameters(), network.parameters(), strict=True):
            mine.copy_(parameter.grad if parameter.grad is not None else torch.zeros_like(parameter))
    named = publish(network.config, network.head_configs, gradients.state_dict()).tensors
    compared = 0
    for name, parameter in model.named_parameters():
        theirs = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
        if "embedding_hidden_mapping_in" in name and not network.config.projects:
            continue  # the identity that only they have
        error = named[name] - theirs
        assert error.norm() <= relative * theirs.norm() or error.abs().max() <= absolute, name
        compared += 1
    assert compared > 10


@pytest.mark.parametrize("family", CLASSES)
def test_every_hidden_state_and_the_pooled_output_equal_transformers(family, small, ragged, tmp_path):
    network = build(small(family), seed=1)
    model = peer(network, "Model", tmp_path).eval()
    given = inputs(*ragged, network.config)
    with torch.no_grad():
        theirs = model(**given, output_hidden_states=True)
        ours = network.eval().encoder.hidden_states(**given)
    assert len(ours) == len(theirs.hidden_states) == network.config.depth + 1
    for mine, other in zip(ours, theirs.hidden_states, strict=True):
        close(mine, other, ragged[1])
    close(network.encoder(**given), theirs.last_hidden_state, ragged[1])
    if network.config.pooler:
        close(network.encoder.pool(ours[-1]), theirs.pooler_output)


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_every_plan_equals_transformers_with_its_gradients(plan, training, small, ragged, tmp_path):
    network = build(small("albert", **plan), HEADS["ForPreTraining"], seed=2).train(training)
    model = peer(network, "ForPreTraining", tmp_path).train(training)
    given = inputs(*ragged, network.config)
    ours, theirs = network(**given), model(**given)
    close(ours["mlm"], theirs.prediction_logits, ragged[1])
    close(ours["pair"], theirs.sop_logits)
    if plan.get("sharing", "all") in ("attention", "ffn"):
        return  # written with copies: their gradients are compared as sums in test_sharing
    (ours["mlm"][ragged[1].bool()].square().mean() + ours["pair"].square().mean()).backward()
    (theirs.prediction_logits[ragged[1].bool()].square().mean() + theirs.sop_logits.square().mean()).backward()
    compare_gradients(network, model)


@pytest.mark.parametrize(("family", "suffix"), HAVE)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_every_head_equals_transformers_with_its_gradients(family, suffix, training, small, ragged, tmp_path):
    needs = suffix in ("ForNextSentencePrediction", "ForMultipleChoice", "ForPreTraining")
    pooler = {"roberta": needs, "distilbert": False}.get(family, needs or suffix == "ForSequenceClassification")
    network = build(small(family, pooler=pooler), HEADS[suffix], seed=3).train(training)
    model = peer(network, suffix, tmp_path).train(training)
    ids, mask = ragged
    given = inputs(ids, mask, network.config)
    theirs = given if suffix != "ForMultipleChoice" else {name: tensor[None] for name, tensor in given.items()}
    answer = model(**theirs)
    ours = network(**given)
    if suffix == "ForQuestionAnswering":
        pairs = [(ours["span"], torch.stack([answer.start_logits, answer.end_logits], -1), mask)]
    elif suffix == "ForPreTraining":
        order = answer.sop_logits if family == "albert" else answer.seq_relationship_logits
        pairs = [(ours["mlm"], answer.prediction_logits, mask), (ours["pair"], order, None)]
    elif suffix == "ForMultipleChoice":
        pairs = [(ours["choice"].view(1, -1), answer.logits, None)]
    else:
        kind = HEADS[suffix][0].kind
        pairs = [(ours[kind], answer.logits, mask if kind in ("mlm", "tag") else None)]
    for mine, other, at in pairs:
        close(mine, other, at)
    for side in (0, 1):
        sum((p[side] if p[2] is None else p[side][p[2].bool()]).square().mean() for p in pairs).backward()
    compare_gradients(network, model)


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu", "silu"])
@pytest.mark.parametrize("family", CLASSES)
def test_every_activation_equals_transformers_in_the_trunk_and_in_the_head(family, activation, small, ragged, tmp_path):
    network = build(small(family, activation=activation, pooler=False), HEADS["ForMaskedLM"], seed=6).eval()
    model = peer(network, "ForMaskedLM", tmp_path).eval()
    given = inputs(*ragged, network.config)
    with torch.no_grad():
        close(network(**given)["mlm"], model(**given).logits, ragged[1])


@pytest.mark.parametrize("family", CLASSES)
def test_regression_equals_transformers_with_its_gradients(family, small, ragged, tmp_path):
    pooler = family in ("albert", "bert")
    network = build(small(family, pooler=pooler), [HeadConfig(kind="regress", labels=("score",))], seed=3).train()
    model = peer(network, "ForSequenceClassification", tmp_path).train()
    assert model.config.problem_type == "regression"
    assert model.config.id2label == {0: "score"}
    given = inputs(*ragged, network.config)
    theirs, ours = model(**given).logits, network(**given)["regress"]
    close(ours, theirs)
    for scores in (ours, theirs):
        scores.square().mean().backward()
    compare_gradients(network, model)


def test_roberta_counts_positions_by_its_padding_piece_as_transformers_does(small, tmp_path):
    network = build(small("roberta"), seed=7).eval()
    model = peer(network, "Model", tmp_path).eval()
    ids = torch.tensor([[0, 17, 1, 18, 2], [1, 1, 0, 19, 2]])
    with torch.no_grad():
        close(network.encoder(ids), model(input_ids=ids).last_hidden_state)
        mask = torch.tensor([[1, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
        close(network.encoder(ids, mask), model(input_ids=ids, attention_mask=mask).last_hidden_state, mask)


@pytest.mark.parametrize("family", CLASSES)
def test_in_float64_gradients_agree_to_ten_digits(family, small, ragged, tmp_path):
    network = build(small(family), seed=5).double().train()
    model = peer(network, "Model", tmp_path).double().train()
    given = inputs(*ragged, network.config)
    for states in (network.encoder(**given), model(**given).last_hidden_state):
        states[ragged[1].bool()].pow(3).sum().backward()
    compare_gradients(network, model, relative=1e-10, absolute=1e-12)


@pytest.mark.parametrize("family", CLASSES)
def test_attention_maps_equal_transformers(family, small, ragged, tmp_path):
    network = build(small(family), seed=4).eval()
    model = peer(network, "Model", tmp_path, attn_implementation="eager").eval()
    given = inputs(*ragged, network.config)
    with torch.no_grad():
        theirs = model(**given, output_attentions=True).attentions
        ours = attention_maps(network.encoder, **given)
    assert len(ours) == len(theirs)
    rows = ragged[1].bool()[:, None, :, None].expand_as(ours[0])
    for mine, other in zip(ours, theirs, strict=True):
        close(mine, other, rows)


def test_the_trained_minilm_gives_the_states_transformers_gives(minilm):
    import litebert

    model = litebert.load(str(minilm))
    theirs = transformers.AutoModel.from_pretrained(minilm).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    batch = tokenizer(
        ["The ship sailed across the bay.", "Rain.", "Why did the fox run?"], padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        answer = theirs(**batch)
        states = model.encoder(**batch)
    close(states, answer.last_hidden_state, batch["attention_mask"])
    close(model.encoder.pool(states), answer.pooler_output)


def test_a_trained_albert_reproduces_its_reference_states(data):
    import numpy as np

    import litebert

    folder = data / "checkpoints" / "albert-plbert"
    reference = np.load(folder / "reference.npz")
    with torch.no_grad():
        states = litebert.load(str(folder)).encoder(torch.from_numpy(reference["input_ids"]))
    close(states, torch.from_numpy(reference["last_hidden_state"]), tolerance=5e-5)


def test_an_exported_config_names_the_class_that_transformers_picks_by_itself(small, tmp_path):
    network = build(small("albert"), HEADS["ForSequenceClassification"])
    export_network(network, tmp_path)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(model).__name__ == "AlbertForSequenceClassification"
    assert model.config.id2label == dict(enumerate(LABELS))
    assert json.loads((tmp_path / "config.json").read_text())["num_hidden_layers"] == 4
