"""The pre-training bench: both sides do the same work on the same text, and only real pieces count."""

import pytest
import torch

from litebert.bench.pretrain import Ours, Peer, bench_pretrain
from litebert.config import UserError, preset
from litebert.model.cost import training_flops
from tests.corpus.conftest import corpus, tokenizer

__all__ = ["corpus", "tokenizer"]

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def shards(corpus):
    return str(corpus("unigram", "en", 300, 0.1))


def test_both_sides_see_the_same_pieces(shards):
    pytest.importorskip("transformers")
    config = preset("albert-tiny")
    ours = Ours(config, shards, 64, 6, 0, True, CPU)
    peer = Peer(config, shards, 64, 6, False, CPU)
    before = [parameter.clone() for parameter in peer.model.parameters()]
    (pieces, flops), (same, whole) = ours(2), peer(2)
    assert pieces == same
    unread = pieces - sum(masked for _, (_, _, masked) in peer.batches[:2]) - 12
    assert whole - flops == pytest.approx(
        3 * unread * 2 * (config.hidden_size**2 + 2 * config.hidden_size * config.ffn_size)
    )
    assert any(not torch.equal(old, new) for old, new in zip(before, peer.model.parameters(), strict=True))
    inputs, (pieces, squares, masked) = peer.batches[0]
    assert inputs["attention_mask"].sum() == pieces
    assert (inputs["attention_mask"].sum(1) ** 2).sum() == squares
    assert (inputs["labels"] != -100).sum() == masked
    ours.close()


def test_flops_are_three_times_the_forward_products():
    config = preset("albert-base")
    hidden, ffn, width, vocabulary = 768, 3072, 128, 30000
    forward = 1000 * (2 * width * hidden + 12 * 2 * (4 * hidden**2 + 2 * hidden * ffn))
    forward += 12 * 4 * hidden * 500_000 + 150 * 2 * (hidden * width + width * vocabulary)
    assert training_flops(config, 12, 1000, 500_000, 150) == 3 * forward
    unread = 850 * 2 * (hidden**2 + 2 * hidden * ffn)
    assert training_flops(config, 12, 1000, 500_000, 150, read=150) == 3 * (forward - unread)


def test_it_reports_rates_and_where_the_time_goes(shards):
    found = bench_pretrain(
        shards, ["albert-tiny"], 64, 1, 1, [4], peer=False, workers=0, device="cpu", profile=True, passes=2
    )
    (row,) = found["rows"]
    assert row["pieces_per_second"] > 0
    assert 0 < row["share_of_peak"] < 1
    assert len(found["kernels"]["albert-tiny"]) > 5


def test_without_a_gpu_it_says_so(shards):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(UserError, match="measures a CUDA device and there is none here"):
        bench_pretrain(shards, ["albert-tiny"])
