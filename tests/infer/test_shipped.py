"""The model that ships: small, found by its name, sensible, and what its card says."""

import re
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from typer.testing import CliRunner

import litebert
from litebert.cli import app
from litebert.infer.model import SHIPPED, find

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model():
    return litebert.load(SHIPPED)


def test_it_is_small_in_bfloat16_with_both_heads(model):
    file = find(SHIPPED) / "model.safetensors"
    assert file.stat().st_size <= 26_000_000
    with safe_open(file, "pt") as tensors:
        assert {tensors.get_slice(name).get_dtype() for name in tensors.keys()} == {"BF16"}  # noqa: SIM118
    assert list(model.heads) == ["mlm", "pair"]
    assert model.config.layers == 12
    assert model.config.one_layer


def test_it_fills_masks_sensibly_from_the_command_line_without_being_named():
    said = CliRunner().invoke(app, ["fill", "The ship sailed across the [MASK]."])
    assert said.exit_code == 0, said.output
    assert "sea" in said.output
    said = CliRunner().invoke(app, ["fill", "The film received mostly positive [MASK] from critics.", "--top", "1"])
    assert "reviews" in said.output


def test_its_card_says_what_it_answers(model):
    card = (find(SHIPPED) / "README.md").read_text()
    rows = re.findall(r"^\| (.*\[MASK\].*) \| (.*) \|$", card, re.MULTILINE)
    assert [sentence for sentence, _ in rows] == (ROOT / "docs" / "sentences.txt").read_text().splitlines()
    assert len(rows) == 20
    for sentence, answers in rows[::4]:
        (guesses,) = model.fill(sentence, 5)
        told = dict(answer.rsplit(" ", 2)[:2] for answer in answers.split(", "))
        assert {guess.text or guess.piece for guess in guesses} == set(told)
        for guess in guesses:
            assert abs(100 * guess.probability - float(told[guess.text or guess.piece])) < 0.6


def test_it_knows_the_order_of_sentences_better_than_chance(model):
    """Of six plain pairs, each both ways round."""
    pairs = [
        ("he opened the door and went into the house.", "inside, he found his brother asleep in a chair."),
        (
            "the town was founded in 1820 by settlers from the east.",
            "it was incorporated as a city thirty years later.",
        ),
        ("she was born in london in 1875.", "after leaving school she studied music in paris."),
        ("the film was released in may 2004.", "it received mixed reviews from critics."),
        ("once upon a time there was a poor woodcutter.", "he lived with his wife in a hut near the forest."),
        ("the game began in heavy rain.", "at half time the score was two to one."),
    ]
    encode, right = model.tokenizer.encode, 0
    for first, second in pairs:
        for texts, label in (((first, second), 0), ((second, first), 1)):
            made = encode(*texts)
            logits = model.network(torch.tensor([made.input_ids]), None, torch.tensor([made.token_type_ids]))["pair"]
            right += int(logits[0].argmax()) == label
    assert right >= 8


def test_transformers_gives_the_same_logits_and_ids_from_the_exported_folder(model, tmp_path):
    transformers = pytest.importorskip("transformers", reason="pip install 'litebert[bench]'")
    said = CliRunner().invoke(app, ["export", SHIPPED, "--to", str(tmp_path / "hf"), "--as", "hf"])
    assert said.exit_code == 0, said.output
    theirs = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "hf", dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    first, second = "The Duke's café was shut,", "so we walked on to Königsberg (a port)."
    made = model.tokenizer.encode(first, second)
    given = tokenizer(first, second, return_tensors="pt")
    assert given["input_ids"][0].tolist() == made.input_ids
    with torch.inference_mode():
        out = theirs(**given)
        ours = model.network(torch.tensor([made.input_ids]), None, torch.tensor([made.token_type_ids]))
    torch.testing.assert_close(
        ours["mlm"].reshape(out.prediction_logits.shape), out.prediction_logits, rtol=0, atol=2e-4
    )
    torch.testing.assert_close(ours["pair"], out.sop_logits, rtol=0, atol=2e-4)


def test_a_folder_of_its_name_goes_before_it(tmp_path, monkeypatch, small):
    from litebert.config import HeadConfig
    from litebert.model.weights import build

    monkeypatch.chdir(tmp_path)
    litebert.Model(network=build(small(), [HeadConfig(kind="mlm")], seed=0)).save(SHIPPED)
    assert litebert.load(SHIPPED).config.hidden_size == small().hidden_size


def test_an_installation_without_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr("litebert.infer.model.resources.files", lambda _: tmp_path)
    with pytest.raises(litebert.UserError, match="litebert-base is not in this installation"):
        find(SHIPPED)


def test_it_travels_in_the_wheel():
    config = (ROOT / "pyproject.toml").read_text()
    patterns = re.search(r"^litebert = \[(.*)\]$", config, re.MULTILINE)[1]
    held = {path for each in re.findall(r'"(.*?)"', patterns) for path in (ROOT / "src/litebert").glob(each)}
    assert set(find(SHIPPED).iterdir()) <= held
