"""Names of what comes with the package, wherever a folder could be said."""

import pytest
from typer.testing import CliRunner

from litebert.cli import app
from litebert.config import UserError
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


def test_info_asks_for_the_unit_of_a_bare_number():
    with pytest.raises(UserError, match="'12' would be so many bytes; write the unit: 12GiB"):
        CliRunner().invoke(app, ["info", "bert-base", "--fit", "12"], catch_exceptions=False)
