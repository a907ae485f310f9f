"""Exact counts: the integers of the released configurations, and every cell of the papers' size tables."""

import pytest
import torch

from litebert.config import PRESETS, HeadConfig, UserError
from litebert.model.cost import count, flops_per_piece
from litebert.model.memory import LENGTHS, fit_table, largest_batch, parse_bytes, step_memory
from litebert.model.weights import build
from litebert.report.info import describe, paper_table


@pytest.mark.parametrize(
    ("name", "key", "expected"),
    [
        ("albert-base-v2", "backbone_and_pooler", 11_683_584),
        ("albert-large", "backbone_and_pooler", 17_683_968),
        ("albert-xlarge", "backbone_and_pooler", 58_724_864),
        ("albert-xxlarge-v1", "backbone_and_pooler", 222_595_584),
        ("albert-base", "backbone", 11_092_992),
        ("albert-base", "with_mlm_and_pair_heads", 11_813_810),
        ("albert-large", "with_mlm_and_pair_heads", 17_847_474),
        ("albert-xlarge", "with_mlm_and_pair_heads", 59_021_490),
        ("albert-xxlarge", "with_mlm_and_pair_heads", 223_158_450),
        ("albert-base", "backbone_and_mlm_head", 11_221_680),
        ("albert-xxlarge", "backbone_and_mlm_head", 206_368_944),
        ("bert-base", "backbone_and_pooler", 109_482_240),
        ("bert-base", "with_mlm_and_pair_heads", 110_106_428),
        ("bert-large", "backbone_and_pooler", 335_141_888),
        ("bert-large", "with_mlm_and_pair_heads", 336_226_108),
        ("bert-xlarge", "backbone", 1_271_095_296),
        ("roberta-base", "backbone_and_mlm_head", 124_697_433),
        ("roberta-large", "backbone_and_mlm_head", 355_412_057),
        ("distilbert-base", "backbone_and_pooler", 66_362_880),
        ("distilbert-base", "backbone_and_mlm_head", 66_985_530),
        ("distilroberta-base", "backbone_and_mlm_head", 82_170_201),
    ],
)
def test_parameter_counts_are_the_published_integers(name, key, expected):
    assert describe(name, PRESETS[name])["parameters"][key] == expected


@pytest.mark.parametrize(("table", "rows"), [("embedding", 8), ("sharing", 8)])
def test_every_cell_of_the_papers_tables_comes_out(table, rows):
    found = paper_table(table)
    assert len(found) == rows
    assert all(row.agrees for row in found), [row for row in found if not row.agrees]


def test_the_sizes_that_differ_from_the_paper_say_why():
    differ = {row.model: row for row in paper_table("sizes") if not row.agrees}
    assert set(differ) == {"albert-xlarge", "albert-xxlarge"}
    assert "59.7M" in differ["albert-xlarge"].why
    assert "222.6M" in differ["albert-xxlarge"].why
    with pytest.raises(UserError, match="no table 'size'"):
        paper_table("size")


def test_parts_add_up_to_the_module_itself(small):
    config = small(sharing="ffn", groups=2)
    heads = [HeadConfig(kind="mlm"), HeadConfig(kind="tag", labels=("a", "b"))]
    assert sum(count(config, heads).values()) == sum(p.numel() for p in build(config, heads).parameters())


def test_flops_are_what_a_counter_counts(small):
    from torch.utils.flop_counter import FlopCounterMode

    config = small(layers=3)
    encoder = build(config).eval().encoder
    ids = torch.ones(2, 16, dtype=torch.long)
    with (
        torch.no_grad(),
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        encoder(ids)
    assert counter.get_total_flops() == 32 * flops_per_piece(config, 16)


def test_memory_grows_with_everything_that_costs_memory():
    base = PRESETS["albert-base"]
    one = step_memory(base, 8, 128).total
    assert step_memory(base, 16, 128).total > one
    assert step_memory(base, 8, 256).total > one
    assert step_memory(PRESETS["albert-base-v1"], 8, 128).total > one  # dropout keeps its masks
    assert step_memory(PRESETS["bert-base"], 8, 128).total > one
    assert step_memory(PRESETS["albert-xxlarge"], 8, 128).total > one


@pytest.mark.parametrize("name", ["albert-base", "bert-large", "albert-xxlarge"])
def test_the_largest_batch_fits_and_the_next_does_not(name):
    config, budget = PRESETS[name], parse_bytes("12GiB")
    rows = fit_table(config, budget)
    assert [row["length"] for row in rows] == list(LENGTHS)
    assert [row["batch"] for row in rows] == sorted((row["batch"] for row in rows), reverse=True)
    for row in rows:
        assert row["bytes"] <= budget
        batch = largest_batch(config, row["length"], budget)
        assert largest_batch(config, row["length"], 2 * budget) > batch
        assert step_memory(config, batch + 1, row["length"]).total > row["bytes"]
    assert largest_batch(PRESETS["bert-xlarge"], 512, budget) == 0


def test_activations_are_estimated_as_what_autograd_keeps(small):
    """Counted on a CPU: the bytes of every distinct tensor that the forward pass in bf16 saves for the backward.

    Not compiled, it keeps the inputs of the norms in fp32, an eighth more, hence the range.
    """
    from litebert.model.cost import PRETRAINING

    config = small(hidden_size=256, ffn_size=1024, layers=6, embedding_size=64, positions=128, vocab_size=500)
    network = build(config, PRETRAINING).train()
    network.encoder.embeddings.compute = torch.bfloat16
    ids = torch.randint(5, 500, (4, 128))
    positions = torch.arange(0, 512, 7)[: round(0.15 * 512)]
    kept: dict[int, int] = {}
    weights = {parameter.data_ptr() for parameter in network.parameters()}
    shapes = {tuple(parameter.shape) for parameter in network.parameters()}

    def keep(tensor):
        copy = tuple(tensor.shape) in shapes or tuple(tensor.t().shape if tensor.dim() == 2 else ()) in shapes
        if tensor.untyped_storage().data_ptr() not in weights and tensor.numel() > 1024 and not copy:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        logits = network(ids, token_type_ids=torch.zeros_like(ids), positions=positions)
    assert logits
    assert 1.0 < sum(kept.values()) / step_memory(config, 4, 128).activations < 1.2


@pytest.mark.parametrize("text", ["12 parsecs", "", "GiB", "-3GB"])
def test_an_amount_of_memory_that_is_none_is_one_line(text):
    with pytest.raises(UserError, match="is not an amount of memory such as 12GiB or 80GB"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "meant"), [("12", "12GiB"), ("80", "80GiB"), ("24576 ", "24576MiB"), ("12b", "12GiB")]
)
def test_a_number_that_no_card_has_as_bytes_lacks_its_unit(text, meant):
    with pytest.raises(UserError, match=f"would be so many bytes; write the unit: {meant}"):
        parse_bytes(text)
    assert parse_bytes(str(12 << 30)) == 12 << 30
