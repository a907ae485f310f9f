"""The bench of fine-tuning: both sides run on the same rows and are scored alike."""

import json

import pytest
from typer.testing import CliRunner

from litebert.cli import app
from litebert.config import UserError


def test_both_sides_train_and_are_scored(minilm, data):
    pytest.importorskip("transformers", reason="pip install 'litebert[bench]'")
    pytest.importorskip("accelerate", reason="pip install 'litebert[bench]'")
    command = ["bench", "finetune", str(minilm), "--data", str(data), "--task", "wnli", "--seeds", "1", "--steps", "1"]
    said = CliRunner().invoke(app, [*command, "--device", "cpu", "--json"])
    assert said.exit_code == 0, said.output
    (row,) = json.loads(said.stdout[said.stdout.index('{\n  "bench"') :])["rows"]
    assert row["dev"] == 71
    assert 0.2 < row["litebert_score"] < 0.8
    assert 0.2 < row["transformers_score"] < 0.8
    assert row["time_ratio"] == row["litebert_seconds"] / row["transformers_seconds"]


def test_what_has_no_peer_is_refused(minilm):
    pytest.importorskip("accelerate", reason="pip install 'litebert[bench]'")
    said = CliRunner().invoke(app, ["bench", "finetune", str(minilm), "--data", "x", "--task", "race"])
    assert isinstance(said.exception, UserError)
    assert "no peer for race" in str(said.exception)
