"""Padding, packing, dropout, masks and starting weights."""

import pytest
import torch

from litebert.config import HeadConfig, UserError
from litebert.model import layers
from litebert.model.encoder import Encoder, attention_maps
from litebert.model.packing import Boundaries, pack, unpack
from litebert.model.weights import build

FAMILIES = ("albert", "bert", "roberta", "distilbert")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("attention", ["ragged_attention", "widened_attention"])
def test_unpadded_equals_padded_with_its_gradients(family, causal, attention, small, ragged, monkeypatch):
    monkeypatch.setattr(layers, "ragged_attention", getattr(layers, attention))
    ids, mask = ragged
    network = build(small(family, causal=causal), [HeadConfig(kind="tag", labels=("a", "b"))], seed=2)
    row, boundaries = pack(ids, mask)
    gradients = []
    for logits in (network(ids, mask)["tag"][mask.bool()], network(row, boundaries=boundaries)["tag"]):
        network.zero_grad()
        logits.pow(2).sum().backward()
        gradients.append({n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None})
    with torch.no_grad():
        padded, packed = network.encoder(ids, mask), network.encoder(row, boundaries=boundaries)
    torch.testing.assert_close(packed, padded[mask.bool()], rtol=0, atol=1e-5)
    torch.testing.assert_close(unpack(packed, mask)[mask.bool()], packed, rtol=0, atol=0)
    if network.config.pooler:
        torch.testing.assert_close(
            network.encoder.pool(packed, boundaries), network.encoder.pool(padded), rtol=0, atol=1e-5
        )
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-4, atol=1e-4, msg=name)


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_never_changes_a_real_piece(family, small, ragged):
    encoder = build(small(family), seed=2).eval().encoder
    ids, mask = ragged
    more = torch.cat([ids, torch.full((3, 9), 7)], 1)
    wide = torch.cat([mask, torch.zeros(3, 9, dtype=mask.dtype)], 1)
    with torch.no_grad():
        before, after = encoder(ids, mask), encoder(more, wide)
        alone = encoder(ids[1:2, :4])
    torch.testing.assert_close(after[:, :11][mask.bool()], before[mask.bool()], rtol=0, atol=1e-5)
    torch.testing.assert_close(alone[0], before[1, :4], rtol=0, atol=1e-5)


@pytest.mark.parametrize("padded", [False, True])
def test_left_to_right_never_sees_what_comes_later(padded, small):
    encoder = build(small(causal=True), seed=2).eval().encoder
    both = build(small(), seed=2).eval().encoder
    ids = torch.arange(10, 20)[None]
    changed = ids.clone()
    changed[0, 6] = 50
    mask = torch.ones_like(ids) if padded else None
    with torch.no_grad():
        a, b = encoder(ids, mask), encoder(changed, mask)
        assert torch.equal(a[:, :6], b[:, :6])
        assert not torch.equal(a[:, 6:], b[:, 6:])
        assert not torch.equal(both(ids)[:, :6], both(changed)[:, :6])
        assert attention_maps(encoder, ids, mask)[0].triu(1).abs().max() == 0


def test_attention_maps_are_weights_over_what_may_be_seen(small, ragged):
    encoder = build(small(), seed=1).encoder
    maps = attention_maps(encoder, *ragged)
    assert len(maps) == encoder.config.depth
    for each in maps:
        torch.testing.assert_close(each.sum(-1), torch.ones(3, 4, 11))
        assert each[1, :, :, 4:].abs().max() == 0


@pytest.mark.parametrize("option", ["dropout", "attention_dropout"])
def test_each_dropout_acts_in_training_and_only_there(option, small, ragged):
    encoder = build(small(**{option: 0.3}), seed=1).encoder
    torch.manual_seed(0)
    assert not torch.equal(encoder.train()(*ragged), encoder(*ragged))
    assert torch.equal(encoder.eval()(*ragged), encoder(*ragged))
    plain = build(small(), seed=1).encoder.train()
    assert torch.equal(plain(*ragged), plain(*ragged))


def test_dropout_is_applied_to_the_feed_forward_output(small):
    ffn = build(small(dropout=0.5), seed=1).train().encoder.trunk.ffn[0]
    seen: list[torch.Tensor] = []
    ffn.norm.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    x = torch.zeros(1, 200, 32)
    with torch.no_grad():
        ffn.down.bias.fill_(1.0)
        ffn.down.weight.zero_()
        ffn(x)
    values = set(seen[0].unique().tolist())
    assert values == {0.0, 2.0}
    assert abs((seen[0] == 0).float().mean() - 0.5) < 0.03


def test_starting_weights_are_a_truncated_normal_and_follow_their_seed(small):
    one, same, other = (build(small(init_std=0.02), seed=seed) for seed in (1, 1, 2))
    words = one.encoder.embeddings.words.weight
    assert torch.equal(words, same.encoder.embeddings.words.weight)
    assert not torch.equal(words, other.encoder.embeddings.words.weight)
    table = Encoder(small(vocab_size=20000, init_std=0.02), torch.Generator().manual_seed(0)).embeddings.words.weight
    assert table.abs().max() <= 0.04
    assert table.std().item() == pytest.approx(0.02 * 0.8796, rel=0.01)  # a normal cut at two deviations
    assert one.encoder.trunk.attention[0].qkv.bias.abs().max() == 0
    assert torch.equal(one.encoder.embeddings.norm.weight, torch.ones(16))


def test_token_types_and_positions_change_the_answer_where_a_member_has_them(small, ragged):
    ids, mask = ragged
    bert, distil = build(small("bert"), seed=1).eval().encoder, build(small("distilbert"), seed=1).eval().encoder
    assert not torch.equal(bert(ids, mask, torch.ones_like(ids)), bert(ids, mask))
    assert torch.equal(distil(ids, mask, torch.ones_like(ids)), distil(ids, mask))
    same = torch.full((1, 5), 9)
    assert not torch.allclose(bert(same)[0, 0], bert(same)[0, 1])


def test_roberta_counts_positions_from_its_offset_over_real_pieces(small):
    encoder = build(small("roberta"), seed=1).eval().encoder
    right = torch.tensor([[9, 10, 11, 1, 1]])
    left = torch.tensor([[1, 1, 9, 10, 11]])
    a = encoder(right, (right != 1).long())[0, :3]
    b = encoder(left, (left != 1).long())[0, 2:]
    torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
    assert encoder.embeddings.positions.weight.shape[0] == 42


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"input_ids": torch.zeros(1, 41, dtype=torch.long)},
            "a sequence of 41 pieces does not fit the model's 40 positions",
        ),
        ({"input_ids": torch.zeros(4, dtype=torch.long)}, r"input_ids of shape \(4,\)"),
        (
            {"input_ids": torch.zeros(1, 4, dtype=torch.long), "attention_mask": torch.ones(1, 5)},
            r"attention_mask \(1, 5\) is not of input_ids' \(1, 4\)",
        ),
        (
            {"input_ids": torch.zeros(5, dtype=torch.long), "boundaries": Boundaries.of([2, 2])},
            "boundaries go with one packed row",
        ),
    ],
)
def test_inputs_that_do_not_fit_stop_with_one_line(given, sentence, small):
    with pytest.raises(UserError, match=sentence):
        build(small()).encoder(**given)


@pytest.mark.parametrize("lengths", [[], [3, 0, 2], [7, -2]])
def test_a_packed_row_has_no_empty_sequence(lengths):
    with pytest.raises(UserError, match="a packed row needs sequences of at least one piece each"):
        Boundaries.of(lengths)


def test_packing_takes_any_mask_of_the_right_shape():
    ids = torch.tensor([[5, 6, 7], [8, 9, 0]])
    for mask in (torch.tensor([[2, 2, 2], [2, 2, 0]]), torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])):
        row, boundaries = pack(ids, mask)
        assert row.tolist() == [5, 6, 7, 8, 9]
        assert boundaries.lengths == (3, 2)
    with pytest.raises(UserError, match=r"attention_mask \(1, 3\) is not of input_ids' \(2, 3\)"):
        pack(ids, torch.ones(1, 3))


def test_token_types_must_be_of_the_inputs_shape(small):
    with pytest.raises(UserError, match=r"token_type_ids \(1, 4\) are not of input_ids' \(2, 4\)"):
        build(small()).encoder(torch.ones(2, 4, dtype=torch.long), token_type_ids=torch.ones(1, 4, dtype=torch.long))


def test_a_piece_that_may_look_nowhere_has_a_map_of_zeros(small):
    encoder = build(small(causal=True)).encoder
    maps = attention_maps(encoder, torch.tensor([[0, 0, 7, 8]]), torch.tensor([[0, 0, 1, 1]]))
    assert maps[0].isfinite().all()
    assert maps[0][0, :, 0].abs().max() == 0


def test_maps_follow_the_number_of_passes(small, ragged):
    encoder = build(small(), seed=1).encoder
    assert len(attention_maps(encoder, *ragged, passes=7)) == 7


def drops(module, x):
    """The share of zeros that a dropout makes of ones."""
    return float((module(torch.ones_like(x)) == 0).float().mean())


@pytest.mark.parametrize("where", ["embeddings.dropout", "trunk.attention.0.dropout", "trunk.ffn.0.dropout"])
def test_each_dropout_site_drops_its_rate_and_stands_in_the_path(where, small, ragged):
    encoder = build(small(dropout=0.4), seed=1).encoder.train()
    site = encoder.get_submodule(where)
    assert drops(site, torch.zeros(4000)) == pytest.approx(0.4, abs=0.05)
    calls = []
    site.register_forward_hook(lambda *_: calls.append(1))
    encoder(*ragged)
    assert len(calls) == (1 if where.startswith("embeddings") else encoder.config.depth)


def test_a_row_of_padding_alone_is_named(small):
    with pytest.raises(UserError, match="row 1 of the batch is nothing but padding"):
        pack(torch.ones(2, 3, dtype=torch.long), torch.tensor([[1, 1, 0], [0, 0, 0]]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_unpadded_equals_padded(dtype, causal, small, ragged):
    ids, mask = (tensor.cuda() for tensor in ragged)
    encoder = build(small(hidden_size=64, causal=causal), seed=2).to("cuda", dtype).eval().encoder
    row, boundaries = pack(ids, mask)
    tolerance = 1e-5 if dtype == torch.float32 else 0.1
    padded, packed = encoder(ids, mask)[mask.bool()], encoder(row, boundaries=boundaries)
    torch.testing.assert_close(packed, padded, rtol=0, atol=tolerance)
    gradients = []
    for states in (padded, packed):
        encoder.zero_grad()
        states.float().pow(2).sum().backward()
        gradients.append(encoder.trunk.attention[0].qkv.weight.grad.float().clone())
    assert (gradients[0] - gradients[1]).norm() <= (1e-4 if dtype == torch.float32 else 0.05) * gradients[0].norm()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_attention_dropout_works_on_a_packed_row(small, ragged):
    ids, mask = (tensor.cuda() for tensor in ragged)
    encoder = build(small(attention_dropout=0.3), seed=2).cuda().train().encoder
    row, boundaries = pack(ids, mask)
    assert not torch.equal(encoder(row, boundaries=boundaries), encoder(row, boundaries=boundaries))
    encoder.eval()
    torch.testing.assert_close(encoder(row, boundaries=boundaries), encoder(ids, mask)[mask.bool()], rtol=0, atol=1e-5)
