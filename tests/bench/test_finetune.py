"""The bench of fine-tuning: both sides run on the same rows and are scored alike."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from litebert.bench import finetune as bench
from litebert.cli import app
from litebert.config import UserError
from litebert.recipe import TuneConfig, TuneRecipe
from litebert.train.trainee import resolve_precision


def test_both_sides_train_and_are_scored(minilm, data):
    pytest.importorskip("transformers", reason="pip install 'litebert[bench]'")
    pytest.importorskip("accelerate", reason="pip install 'litebert[bench]'")
    command = ["bench", "finetune", str(minilm), "--data", str(data), "--task", "wnli", "--seeds", "1", "--steps", "1"]
    said = CliRunner().invoke(app, [*command, "--device", "cpu", "--json"])
    assert said.exit_code == 0, said.output
    (row,) = json.loads(said.stdout)["rows"]
    assert row["dev"] == 71
    assert 0.2 < row["litebert_score"] < 0.8
    assert 0.2 < row["transformers_score"] < 0.8
    assert row["time_ratio"] == row["litebert_seconds"] / row["transformers_seconds"]


def test_what_has_no_peer_is_refused(minilm):
    pytest.importorskip("accelerate", reason="pip install 'litebert[bench]'")
    said = CliRunner().invoke(app, ["bench", "finetune", str(minilm), "--data", "x", "--task", "race"])
    assert isinstance(said.exception, UserError)
    assert "no peer for race" in str(said.exception)


@pytest.mark.parametrize(("precision", "bf16"), [("auto", False), ("fp32", False), ("bf16", True)])
def test_both_sides_have_the_precision_that_is_said(precision, bf16, minilm, tmp_path):
    pytest.importorskip("accelerate", reason="pip install 'litebert[bench]'")
    recipe = TuneRecipe(model=str(minilm), tune=TuneConfig(precision=precision))
    assert bench._arguments(recipe, str(tmp_path), torch.device("cpu")).bf16 is bf16
    assert (resolve_precision(recipe.tune, torch.device("cpu")) == "bf16") is bf16


def test_a_precision_without_a_peer_is_refused(minilm):
    pytest.importorskip("accelerate", reason="pip install 'litebert[bench]'")
    with pytest.raises(UserError, match="--precision 'fp64'; allowed: auto, bf16, fp32"):
        bench.bench_finetune(str(minilm), "x", ["rte"], precision="fp64")


def test_the_peers_answers_come_in_the_order_of_the_rows(minilm):
    library = pytest.importorskip("transformers", reason="pip install 'litebert[bench]'")
    tokenizer = library.AutoTokenizer.from_pretrained(minilm)
    texts = ["one", "a much longer text than the others are", "two words", "three words here", "x"]
    rows = [dict(tokenizer(text)) for text in texts]
    model = library.AutoModelForSequenceClassification.from_pretrained(minilm, num_labels=2)
    collate = library.DataCollatorWithPadding(tokenizer)
    together = bench._their_logits(model, collate, rows, size=2)
    alone = [bench._their_logits(model, collate, [row])[0] for row in rows]
    np.testing.assert_allclose(together, alone, atol=1e-5)
