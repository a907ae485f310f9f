"""The held-out protocol: figures by hand, the same for any split, and honest about small corpora."""

import json
import math
import re

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from litebert.cli import app
from litebert.config import HeadConfig, UserError
from litebert.corpus.batches import START, Stream, take
from litebert.corpus.examples import Examples
from litebert.corpus.pack import pack
from litebert.infer.model import Model, load
from litebert.model.weights import build
from litebert.recipe import DataConfig
from litebert.text.tokenizer import Tokenizer
from litebert.train import heldout
from litebert.train.feed import to_micro
from litebert.train.heldout import MOST_EPOCHS, SEED, evaluate, piece_lengths, protocol, trained_for
from litebert.train.objective import build_objective
from litebert.train.processes import Processes

CPU = Processes(torch.device("cpu"))


@pytest.fixture
def objective(small):
    network = build(small(vocab_size=100, positions=128), [HeadConfig(kind="mlm"), HeadConfig(kind="pair")], seed=1)
    return build_objective(network, torch.float64, False, False)


def test_the_protocol_is_the_published_one():
    found = protocol(DataConfig(), 512)
    assert (found.length, found.objective, found.short_rate) == (128, "sop", 0.0)
    mask = found.mask
    assert (mask.rate, mask.unit, mask.ngram, mask.masked, mask.random) == (0.15, "piece", 1, 0.8, 0.1)
    assert protocol(DataConfig(objective="nsp"), 64).length == 64
    assert protocol(DataConfig(objective="nsp"), 64).objective == "nsp"


def test_figures_are_those_counted_by_hand(objective, shards):
    config = protocol(DataConfig(), 128)
    found = evaluate(objective, str(shards), config, 10, CPU)
    stream = Stream(str(shards), config, 10, SEED, "held-out")
    batch, _ = take(stream.examples(), stream, START)
    with torch.no_grad():
        micro = to_micro(pack(batch, 128, 0, False), torch.device("cpu"))
        guesses = objective.eval()(micro)
    assert found["examples"] == 10
    assert found["masked_accuracy"] == pytest.approx(guesses.masked_right.mean().item())
    assert found["masked_loss"] == pytest.approx(guesses.masked.mean().item())
    assert found["perplexity"] == pytest.approx(math.exp(guesses.masked.mean().item()))
    assert found["order_accuracy"] == pytest.approx(guesses.pair_right.mean().item())
    p = found["order_accuracy"]
    assert found["order_accuracy_error"] == pytest.approx(math.sqrt(p * (1 - p) / 10))
    tokenizer = Tokenizer.load(shards / "tokenizer")
    characters = sum(len(tokenizer.piece(int(label))) for label in batch.labels)
    assert found["bits_per_character"] == pytest.approx(guesses.masked.sum().item() / math.log(2) / characters)
    owners = micro.owners.numpy()
    right = np.bincount(owners, guesses.masked_right.numpy(), 10)
    count = np.bincount(owners, minlength=10)
    spread = ((right - found["masked_accuracy"] * count) ** 2).sum() ** 0.5 / count.sum()
    assert found["masked_accuracy_error"] == pytest.approx(spread)
    losses = np.bincount(owners, guesses.masked.numpy(), 10)
    spread = ((losses - found["masked_loss"] * count) ** 2).sum() ** 0.5 / count.sum()
    assert found["perplexity_error"] == pytest.approx(found["perplexity"] * spread)


def test_looking_changes_nothing(objective, shards, monkeypatch):
    objective.train()
    before = [parameter.clone() for parameter in objective.parameters()]
    config = protocol(DataConfig(), 128)
    one = evaluate(objective, str(shards), config, 20, CPU)
    monkeypatch.setattr(heldout, "AT_ONCE", 7)
    assert one == pytest.approx(evaluate(objective, str(shards), config, 20, CPU))
    assert objective.training
    assert all(torch.equal(old, new) for old, new in zip(before, objective.parameters(), strict=True))


def test_an_epoch_is_planned_once_however_often_it_is_asked(objective, shards, monkeypatch):
    planned, plan = [], Examples._epoch
    monkeypatch.setattr(Examples, "_epoch", lambda self, epoch: planned.append(epoch) or plan(self, epoch))
    monkeypatch.setattr(heldout, "AT_ONCE", 3)
    evaluate(objective, str(shards), protocol(DataConfig(), 128), 10**6, CPU)
    assert planned == list(range(MOST_EPOCHS + 1))  # one more: where the next batch would begin


def test_a_small_corpus_is_not_counted_for_a_large_one(objective, shards):
    config = protocol(DataConfig(), 128)
    once = len(Stream(str(shards), config, 1, SEED, "held-out").examples().epoch(0))
    found = {count: evaluate(objective, str(shards), config, count, CPU) for count in (once, 4 * once, 10**6)}
    assert found[10**6] == found[4 * once]
    assert found[10**6]["examples"] == MOST_EPOCHS * once
    for name in ("masked_accuracy_error", "order_accuracy_error"):  # seen four times it is as uncertain as seen once
        assert found[4 * once][name] == pytest.approx(found[once][name], rel=0.25)


def test_evaluate_gives_the_score_that_ended_the_run(train, shards):
    folder, told = train()
    final = next(line for line in told if line["kind"] == "final")["protocol"]
    words = ["evaluate", str(folder), "--shards", str(shards), "--examples", "32"]
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert len(found) == 1
    assert found[0]["objective"] == "sop"
    for name, value in final.items():
        assert found[0][name] == pytest.approx(value, rel=1e-5), name
    table = CliRunner().invoke(app, words).output
    assert f"{100 * final['order_accuracy']:.2f} ± {100 * final['order_accuracy_error']:.2f}" in table
    depths = json.loads(CliRunner().invoke(app, [*words, "--passes", "2,4", "--json"]).stdout)
    assert [each["passes"] for each in depths] == [2, 4]
    assert depths[1] == found[0]
    assert depths[0]["masked_loss"] != depths[1]["masked_loss"]
    lengths = json.loads(CliRunner().invoke(app, [*words, "--length", "16", "--length", "64", "--json"]).stdout)
    assert [each["length"] for each in lengths] == [16, 64]
    assert lengths[0]["masked_loss"] != lengths[1]["masked_loss"]
    assert lengths[1] == found[0]  # as long as this model reads
    learned, unseen = (
        json.loads(CliRunner().invoke(app, [*words, "--split", part, "--json"]).stdout)[0]
        for part in ("train", "held-out")
    )
    assert unseen == found[0]
    assert learned["part"] == "train"
    assert learned["masked_loss"] != unseen["masked_loss"]
    words = CliRunner().invoke(app, [*words, "--objective", "mlm", "--json"])
    assert "order_accuracy" not in json.loads(words.stdout)[0]


def test_a_pair_head_is_asked_what_its_run_taught_it(train, shards, tmp_path):
    """A BERT that was taught order is asked for order, whatever BERTs are taught elsewhere."""
    folder, _ = train(model={"family": "bert", "sharing": "none", "embedding_size": 32})
    assert trained_for(str(folder), load(folder)) == "sop"
    load(folder).save(tmp_path / "bare")
    assert trained_for(str(tmp_path / "bare"), load(folder)) == "nsp"


def test_a_second_text_that_was_never_shown_reads_like_the_first(train, shards):
    """Its token type was never taught: a random vector on half of the pieces would decide the score."""
    folder, told = train(data={"objective": "mlm", "layout": "full-sentences"})
    final = next(line for line in told if line["kind"] == "final")["protocol"]
    types = load(folder).encoder.embeddings.types.weight
    assert torch.equal(types[0], types[1])
    for name in (folder, folder / "model"):
        words = ["evaluate", str(name), "--shards", str(shards), "--examples", "32", "--json"]
        found = json.loads(CliRunner().invoke(app, words).stdout)[0]
        assert found["masked_loss"] == pytest.approx(final["masked_loss"], rel=1e-6)


@pytest.mark.parametrize(
    ("run", "layout", "taught"),
    [("pairs", "segment-pair", True), ("fresh", "doc-sentences", False), ("goes on", "full-sentences", True)],
)
def test_a_type_that_was_met_before_is_kept(run, layout, taught, train):
    before = train(data={"objective": "mlm"})[0] if run == "goes on" else ""
    data = {"objective": "mlm", "layout": layout}
    folder, _ = train(data=data, run={"init_from": str(before), "steps": 2, "save_every": 2})
    types = load(folder).encoder.embeddings.types.weight
    assert torch.equal(types[0], types[1]) is not taught


def test_what_cannot_be_scored_on_text_is_one_line(train, shards, corpus, tmp_path):
    folder, _ = train(data={"objective": "mlm"})
    model = load(folder)
    build_headless = Model(network=build(model.config, [], seed=0), tokenizer=model.tokenizer)
    build_headless.save(tmp_path / "bare")
    other = corpus("unigram", "de", 300, 0.1)
    for words, sentence in (
        ([tmp_path / "bare", "--shards", shards], "this model has no masked-LM head (its heads: none)"),
        ([folder, "--shards", shards, "--objective", "sop"], "objective = 'sop' asks a pair head"),
        ([folder, "--shards", shards, "--objective", "both"], "objective = 'both'; allowed: sop, nsp, mlm"),
        ([folder, "--shards", other], "tokenizer"),
        ([folder, "--shards", shards, "--data", "x.csv"], "--shards are for a pre-trained model"),
        ([folder, "--shards", tmp_path / "none"], "no shards"),
        ([folder, "--data", "x.csv", "--examples", "5"], "--examples, --objective and --length go with --shards"),
        ([folder, "--shards", shards, "--length", "9999"], "length = 9999 does not fit the model's"),
        ([folder, "--shards", shards, "--split", "dev"], "shards have no part 'dev'; they have: train, held-out"),
    ):
        with pytest.raises(UserError, match=re.escape(sentence)):
            CliRunner().invoke(app, ["evaluate", *map(str, words)], catch_exceptions=False)


def test_characters_of_pieces():
    assert piece_lengths(_Fake()).tolist() == [0, 4, 3, 1]


class _Fake:
    special_ids = frozenset({0})
    pieces = ("[PAD]", "▁the", "##ing", "a")

    def __len__(self):
        return 4

    def piece(self, index):
        return self.pieces[index]
