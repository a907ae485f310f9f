"""`litebert plot layers | attention | memory`: pictures and their numbers, and one line for a mistake."""

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from litebert.cli import app
from litebert.cli.names import named
from litebert.config import UserError
from litebert.infer.model import Model
from litebert.model.weights import build
from tests.toys import toy_model

pytest.importorskip("matplotlib")

ROOT = Path(__file__).parents[2]
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    where = tmp_path_factory.mktemp("models")
    return {family: str(toy_model(where / family, family, layers=3)) for family in ("albert", "bert")}


@pytest.fixture
def bare(small, tmp_path):
    """A model without a tokenizer."""
    Model(network=build(small(), (), 0)).save(tmp_path / "bare")
    return str(tmp_path / "bare")


def run(*words):
    return CliRunner().invoke(app, ["plot", *map(str, words)], catch_exceptions=False)


def as_json(*words):
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_several_models_share_a_picture_of_their_layers(toys, bare, tmp_path):
    to = tmp_path / "a.png"
    words = ["layers", *toys.values(), f"Mine={bare}", "--text", "the film was fine .", "--ids", "random", "--to", to]
    found = as_json(*words)
    assert [each["name"] for each in found["models"]] == ["albert", "bert", "Mine"]
    assert [each["source"] for each in found["models"]] == ["text", "text", "random ids"]
    assert [len(each["distance"]) for each in found["models"]] == [3, 3, 4]
    assert [len(each["length"]) for each in found["models"]] == [4, 4, 5]
    assert to.read_bytes().startswith(PNG)
    text = run(*words).stdout
    assert "random ids" in text
    assert f"wrote {to}" in text


def test_every_text_counts_those_that_were_said_and_those_of_a_file(toys, tmp_path):
    (tmp_path / "texts.txt").write_text("the book\nann went to rome\n")
    words = ["layers", toys["bert"], "--to", tmp_path / "a.svg"]
    said = as_json(*words, "--text", "the film")["models"][0]
    both = as_json(*words, "--text", "the film", "--text", "a book")["models"][0]
    file = as_json(*words, "--text", "the film", "--texts", tmp_path / "texts.txt")["models"][0]
    assert [(each["rows"], each["pieces"]) for each in (said, both, file)] == [(1, 4), (2, 8), (3, 14)]
    assert len({each["distance"][0] for each in (said, both, file)}) == 3


def test_a_long_text_is_cut_and_that_is_said_on_the_error_stream(toys, tmp_path):
    done = run("layers", toys["bert"], "--text", "the " * 90, "--to", tmp_path / "a.png")
    assert "bert: 1 of 1 rows are longer than it takes and were cut" in done.stderr
    done = run(
        "attention", toys["bert"], "--text", "the " * 90, "--heads", "mean", "--to", tmp_path / "a.png", "--json"
    )
    assert "the text has 92 pieces and was cut to 64" in done.stderr
    assert json.loads(done.stdout)["lost"] == 28


def test_attention_is_drawn_by_chosen_layers_and_heads(toys, tmp_path):
    words = ["attention", toys["albert"], "--text", "the film", "--to", tmp_path / "a.pdf"]
    found = as_json(*words, "--layers", "1,2", "--heads", "3")
    assert [(each["layer"], each["head"]) for each in found["panels"]] == [(1, 3), (2, 3)]
    assert found["panels"][0]["attention"] != found["panels"][1]["attention"]
    assert f"wrote {tmp_path / 'a.pdf'}: 4 panels of 4 pieces" in run(*words).stdout


def test_attention_over_ids_is_labelled_by_them(bare, tmp_path):
    (tmp_path / "a.json").write_text("[5, 17, 8]")
    found = as_json("attention", bare, "--ids", tmp_path / "a.json", "--to", tmp_path / "a.png")
    assert found["pieces"] == ["5", "17", "8"]
    assert found["source"] == "ids of a.json"


def test_memory_draws_the_family_or_those_that_were_said(toys, tmp_path):
    to = tmp_path / "a.png"
    found = as_json("memory", "--to", to)
    assert {"albert-base", "bert-base", "distilbert-base"} < set(found["curves"])
    assert found["budget_bytes"] == 12 << 30
    some = as_json("memory", "bert-base", f"Mine={toys['bert']}", "--fit", "80GB", "--to", to)
    assert set(some["curves"]) == {"bert-base", "Mine"}
    assert [row["length"] for row in some["curves"]["Mine"]] == [64]
    assert some["curves"]["bert-base"][0]["batch"] > found["curves"]["bert-base"][0]["batch"]
    text = run("memory", "bert-base", "--to", to).stdout
    assert re.search(r"bert-base, published +64 +32 +16 +14 +12 +6", text)
    assert "not beside these" in run("memory", "bert-base", "--fit", "80GB", "--to", to).stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["layers", "TOY"], "say what to read: --text TEXT, --texts FILE, or --ids FILE"),
        (["layers", "TOY", "--text", " "], "text 1 is empty"),
        (["layers", "BARE", "--text", "the"], "bare has no tokenizer beside it; give it pieces by --ids FILE"),
        (["layers", "BARE", "--ids", "none.npy"], "cannot read none.npy"),
        (["layers", "BARE", "TOY", "--ids", "ids.json"], "the ids of ids.json mean other pieces to each"),
        (["layers", "TOY", "TOY", "--text", "the"], "is named twice"),
        (["layers", "nowhere/at/all", "--text", "the"], "no folder nowhere/at/all"),
        (["layers", "TOY", "--text", "the", "--to", "a.bmp"], "cannot write a.bmp: a picture is a file that ends in"),
        (["layers", "TOY", "--text", "the", "--to", "bare.png"], "bare.png is a folder"),
        (["layers", "TOY", "--text", "the", "--to", "ids.json/a.png"], "cannot write ids.json/a.png: "),
        (["attention", "TOY", "--text", "the", "--layers", "9"], "--layers 9; this model has 3"),
        (["attention", "TOY", "--text", "the", "--heads", "9"], "--heads 9; this model has 4"),
        (["attention", "TOY"], "say what to read"),
        (["memory", "albert-bsae"], "'albert-bsae' is no preset, recipe or folder; did you mean 'albert-base'?"),
        (["memory", "--fit", "much"], "'much' is not an amount of memory"),
        (["memory", "--fit", "0GB"], "--fit 0GB; give an amount"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(words, sentence, toys, bare, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ids.json").write_text("[5, 6]")
    (tmp_path / "bare.png").mkdir()
    before = set(tmp_path.iterdir())
    with pytest.raises(UserError, match=re.escape(sentence)) as problem:
        run(*({"TOY": toys["bert"], "BARE": bare}.get(word, word) for word in words))
    assert "\n" not in str(problem.value)
    assert set(tmp_path.iterdir()) == before


def test_a_folder_with_an_equals_sign_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=3").mkdir()
    assert named(["lr=3", "b=c"]) == {"lr=3": "lr=3", "b": "c"}


def commands():
    text = (ROOT / "docs" / "pictures.md").read_text()
    blocks = "".join(re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)).replace("\\\n", " ")
    return [shlex.split(line, comments=True) for line in blocks.splitlines() if line.startswith("litebert plot")]


def test_every_picture_of_the_docs_has_its_command_and_the_other_way_round():
    drawn = {words[words.index("--to") + 1] for words in commands()}
    shown = set(re.findall(r"\]\((pictures/[^)]+\.png)\)", (ROOT / "docs" / "pictures.md").read_text()))
    assert {f"docs/{path}" for path in shown} == drawn
    assert len(drawn) >= 4
    for path in shown:
        assert (ROOT / "docs" / path).read_bytes().startswith(PNG)


def test_the_commands_of_the_docs_run(data, minilm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in commands():
        there = [word.replace("MINILM", str(minilm)).replace("DATA/", f"{data}/") for word in words[2:]]
        assert run(*there).exit_code == 0, words
        assert Path(words[words.index("--to") + 1]).read_bytes().startswith(PNG)
