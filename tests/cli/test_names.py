"""Names of what comes with the package, wherever a folder could be said."""

import pytest
from typer.testing import CliRunner

from litebert.cli import app
from litebert.config import UserError
from litebert.files import meant
from litebert.infer.model import SHIPPED, find
from litebert.text.tokenizer import Tokenizer


def test_the_shipped_models_name_is_that_of_its_tokenizer_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("Rain fell for three days. The road was closed.\n\nSpring came early that year.\n")
    words = ["corpus", "build", "a.txt", "--tokenizer", SHIPPED, "--to", "shards", "--held-out", "0"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert Tokenizer.load("shards/tokenizer").checksum == Tokenizer.load(find(SHIPPED)).checksum
    (tmp_path / SHIPPED).mkdir()  # what lies here is meant first
    with pytest.raises(UserError, match=f"{SHIPPED} holds no tokenizer"):
        Tokenizer.load(SHIPPED)
    for name in ("litebert-bas", f"./{SHIPPED}/..", "", "elsewhere/litebert-base"):
        with pytest.raises(UserError, match="no tokenizer"):
            Tokenizer.load(name)


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["corpus", "build", "a.txt", "--tokenizer", "tokk", "--to", "x"], "tok"),
        (["corpus", "build", "a.txt", "--tokenizer", "litebert-bsae", "--to", "x"], "litebert-base"),
        (["corpus", "build", "a.tx", "--tokenizer", "litebert-base", "--to", "x"], "a.txt"),
        (["corpus", "inspect", "deep/shard"], "deep/shards"),
        (["corpus", "inspect", "dep/shards"], "deep"),
        (["evaluate", "litebert-base", "--shards", "deep/shard"], "deep/shards"),
        (["pretrain", "smoke", "--set", "data.shards=deep/shard", "--to", "x"], "deep/shards"),
        (["finetune", "litebert-base", "--train", "revews.csv", "--to", "x"], "reviews.csv"),
        (["finetune", "litebert-base", "--train", "words.conl", "--to", "x"], "words.conll"),
        (["finetune", "litebert-base", "--task", "rte", "--data", "./gleu", "--to", "x"], "glue"),
        (["predict", "deep/modle", "reviews.csv", "--to", "x.csv"], "deep/model"),
        (["predict", "litebert-base", "review.csv", "--to", "x.csv"], "reviews.csv"),
        (["info", "deep/modle"], "deep/model"),
    ],
)
def test_a_misspelt_path_is_told_what_lies_beside_it(words, near, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("tok", "deep/shards", "deep/model", "glue"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("a.txt", "reviews.csv", "words.conll"):
        (tmp_path / file).write_text("text,label\n")
    with pytest.raises(UserError, match=rf"; did you mean '(/.*/)?{near}'\?$") as problem:
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize("path", ["nowhere", "nope.csv", "review/a.csv", "no/where", "", "x" * 300 + "/y", "a\0b"])
def test_a_path_that_is_like_no_other_is_told_none(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("reviews.csv", "pipe.csv"):
        (tmp_path / name).touch()
    assert meant(path) == ""


def test_info_asks_for_the_unit_of_a_bare_number():
    with pytest.raises(UserError, match="'12' would be so many bytes; write the unit: 12GiB"):
        CliRunner().invoke(app, ["info", "bert-base", "--fit", "12"], catch_exceptions=False)
