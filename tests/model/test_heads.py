"""Heads: what they read, how they are tied, and the beam that SQuAD 2.0 needs."""

import pytest
import torch

from litebert.config import HeadConfig, UserError
from litebert.model.heads import Network, SpanBeam
from litebert.model.packing import pack
from litebert.model.weights import build

FAMILIES = ("albert", "bert", "roberta", "distilbert")


@pytest.mark.parametrize("family", FAMILIES)
def test_only_the_masked_positions_are_projected_and_they_are_the_same(family, small, ragged):
    network = build(small(family), [HeadConfig(kind="mlm")], seed=1)
    positions = torch.tensor([1, 5, 12, 23])
    everywhere = network(*ragged)["mlm"]
    some = network(*ragged, positions=positions)["mlm"]
    assert some.shape == (4, 99)
    torch.testing.assert_close(some, everywhere.flatten(0, 1)[positions], rtol=0, atol=1e-5)


def test_the_masked_lm_head_is_narrow_for_albert_and_wide_for_the_others(small):
    for family in FAMILIES:
        config = small(family)
        head = build(config, [HeadConfig(kind="mlm")]).heads["mlm"]
        assert head.dense.out_features == (config.embedding_size if family == "albert" else config.hidden_size)


def test_the_output_matrix_is_the_word_table_itself(small, ragged):
    network = build(small(), [HeadConfig(kind="mlm")], seed=1)
    assert not any("decoder" in name for name in network.state_dict())
    before = network(*ragged)["mlm"]
    with torch.no_grad():
        network.encoder.embeddings.words.weight[97] += 1  # a piece that is not in the input
    assert not (ragged[0] == 97).any()
    after = network(*ragged)["mlm"]
    assert (before[..., :97] == after[..., :97]).all()
    assert (before[..., 97] != after[..., 97]).any()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", ["classify", "regress", "choice", "tag", "span"])
def test_every_head_answers_a_packed_row_as_it_answers_a_padded_batch(family, kind, small, ragged):
    pooler = family != "distilbert"
    head = HeadConfig(kind=kind, labels=("a", "b", "c") if kind in ("classify", "tag") else ())
    network = build(small(family, pooler=pooler), [head], seed=1).eval()
    row, boundaries = pack(*ragged)
    padded, packed = network(*ragged)[kind], network(row, boundaries=boundaries)[kind]
    if kind in ("tag", "span"):
        padded = padded[ragged[1].bool()]
    torch.testing.assert_close(packed, padded, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["classify", "regress", "choice", "tag", "span"])
def test_a_heads_dropout_acts_in_training_and_only_there(kind, small, ragged):
    labels = ("a", "b") if kind in ("classify", "tag") else ()
    network = build(small(), [HeadConfig(kind=kind, labels=labels, dropout=0.5)], seed=1)
    assert not torch.equal(network.train()(*ragged)[kind], network(*ragged)[kind])
    assert torch.equal(network.eval()(*ragged)[kind], network(*ragged)[kind])


def test_the_span_beam_head_equals_the_xlnet_modules_it_comes_from():
    xlnet = pytest.importorskip("transformers.models.xlnet.modeling_xlnet")
    config = pytest.importorskip("transformers").XLNetConfig(d_model=32, n_head=4, layer_norm_eps=1e-12)
    start, end, answer = (
        xlnet.XLNetPoolerStartLogits(config),
        xlnet.XLNetPoolerEndLogits(config),
        xlnet.XLNetPoolerAnswerClass(config),
    )
    head = SpanBeam(32, dropout=0.0, norm_eps=1e-12)
    pairs = [
        (head.start, start.dense),
        (head.end_dense, end.dense_0),
        (head.end_norm, end.LayerNorm),
        (head.end, end.dense_1),
        (head.answer_dense, answer.dense_0),
        (head.answer, answer.dense_1),
    ]
    for ours, theirs in pairs:
        ours.load_state_dict(theirs.state_dict())
    pieces = torch.randn(3, 11, 32, generator=torch.Generator().manual_seed(0))
    allowed = torch.rand(3, 11, generator=torch.Generator().manual_seed(1)) > 0.3
    allowed[:, 0] = True
    gold = torch.tensor([0, 4, 7])
    allowed[torch.arange(3), gold] = True
    closed = (~allowed).float()
    ours_start, ours_end, ours_answer = head(pieces, allowed, gold)
    theirs_start, theirs_end = start(pieces, p_mask=closed), end(pieces, start_positions=gold, p_mask=closed)
    torch.testing.assert_close(ours_start[allowed], theirs_start[allowed])
    torch.testing.assert_close(ours_end[allowed], theirs_end[allowed])
    weighted = torch.einsum("bs,bsh->bh", theirs_start.softmax(-1), pieces)
    cls_index = torch.zeros(3, dtype=torch.long)
    torch.testing.assert_close(ours_answer, answer(pieces, start_states=weighted, cls_index=cls_index))


def test_the_beam_holds_the_best_starts_and_for_each_its_best_ends_within_what_is_allowed():
    torch.manual_seed(0)
    head = SpanBeam(16, dropout=0.1, norm_eps=1e-12).eval()
    pieces, allowed = torch.randn(2, 12, 16), torch.ones(2, 12, dtype=torch.bool)
    allowed[:, 1:4] = False
    beam = head.beam(pieces, allowed, starts=3, ends=2)
    assert beam.start.shape == (2, 3)
    assert beam.end.shape == beam.end_at.shape == (2, 3, 2)
    for b in range(2):
        start = head.start_logits(pieces, allowed)[b].log_softmax(-1)
        assert beam.start_at[b].tolist() == start.argsort(descending=True)[:3].tolist()
        for k, at in enumerate(beam.start_at[b]):
            end = head(pieces, allowed, torch.full((2,), int(at)))[1][b].log_softmax(-1)
            torch.testing.assert_close(beam.end[b, k], end.topk(2).values)
    assert not set(beam.start_at.flatten().tolist()) & {1, 2, 3}
    assert not set(beam.end_at.flatten().tolist()) & {1, 2, 3}
    assert head.beam(pieces[:, :2], allowed[:, :2]).start.shape == (2, 2)


def test_a_network_trains_its_span_beam_and_says_how_to_ask_it(small, ragged):
    network = build(small(), [HeadConfig(kind="span-beam")], seed=1)
    logits = network(*ragged, allowed=ragged[1].bool(), start_at=torch.tensor([1, 2, 3]))
    assert set(logits) == {"start", "end", "no-answer"}
    with pytest.raises(UserError, match="to answer: `beam`"):
        network(*ragged)


def test_robertas_classifier_drops_before_and_after_its_dense_layer(small, ragged):
    network = build(small("roberta"), [HeadConfig(kind="classify", labels=("a", "b"), dropout=0.5)], seed=1).train()
    head = network.heads["classify"]
    seen = {}
    head.dense.register_forward_pre_hook(lambda _, given: seen.update(dense=given[0]))
    head.out.register_forward_pre_hook(lambda _, given: seen.update(out=given[0]))
    network(*ragged)
    assert 0.3 < (seen["dense"] == 0).float().mean() < 0.7
    assert 0.3 < (seen["out"] == 0).float().mean() < 0.7


def test_a_beam_wider_than_what_is_allowed_marks_the_rest_as_impossible():
    head = SpanBeam(16, dropout=0.0, norm_eps=1e-12).eval()
    allowed = torch.zeros(1, 12, dtype=torch.bool)
    allowed[0, [3, 7]] = True
    beam = head.beam(torch.randn(1, 12, 16), allowed)
    assert set(beam.start_at[0, :2].tolist()) == {3, 7}
    assert (beam.start[0, 2:] < -1e30).all()


@pytest.mark.parametrize(
    ("config", "heads", "sentence"),
    [
        ({"pooler": False}, [HeadConfig(kind="pair")], "a pair head of family 'albert' reads the pooler"),
        ({}, [HeadConfig(kind="mlm"), HeadConfig(kind="mlm")], "two heads of one kind: mlm, mlm"),
        (
            {"family": "bert", "embedding_size": 16},
            [HeadConfig(kind="mlm")],
            "a bert masked-LM head is 32 wide and the word table 16",
        ),
    ],
)
def test_heads_that_cannot_stand_on_their_encoder_say_so(config, heads, sentence, small):
    with pytest.raises(UserError, match=sentence):
        Network(small(**({"family": "albert"} | config)), heads)


def test_an_encoder_without_a_pooler_says_so_when_asked_to_pool(small, ragged):
    encoder = build(small(pooler=False)).encoder
    with pytest.raises(UserError, match="this encoder has no pooler"):
        encoder.pool(encoder(*ragged))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"kind": "classify"}, "a classify head needs the names of its labels"),
        ({"kind": "tag", "labels": ("a", "a")}, "label 'a' is named twice in the tag head"),
        ({"kind": "pair", "dropout": 1.0}, "dropout = 1.0 must be at least 0 and below 1"),
        ({"kind": "mlm", "dropout": 0.5}, "a masked-LM head has no dropout"),
        ({"kind": "span", "labels": ("a",)}, "a span head has no use for 1 labels"),
        ({"kind": "regress", "labels": ("a", "b")}, "a regress head has no use for 2 labels"),
        ({"kind": "tag", "labels": ("a",), "several": True}, "several labels at once are for a classify head"),
        ({"kind": "clasify", "labels": ("a",)}, "kind = 'clasify'; did you mean 'classify'?"),
    ],
)
def test_head_settings_are_checked(values, sentence):
    with pytest.raises(UserError, match=sentence):
        HeadConfig(**values)
