"""`litebert corpus` and `litebert tokenizer` from text to a look at the masks, and their benches."""

import json

import pytest
from typer.testing import CliRunner

from litebert.bench.batches import bench_batches
from litebert.bench.corpus import bench_corpus
from litebert.cli import app
from litebert.config import UserError
from tests.corpus.samples import documents


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder in which text has become a tokenizer and shards, by the commands alone."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "text.txt").write_text("\n\n".join(documents("de", 200)))
    train = run(
        "tokenizer",
        "train",
        folder / "text.txt",
        "--to",
        folder / "tok",
        "--vocab-size",
        100,
        "--keep-accents",
        "--json",
    )
    assert json.loads(train.stdout)["vocab_size"] == 100
    build = run("corpus", "build", folder / "text.txt", "--tokenizer", folder / "tok", "--to", folder / "shards",
                "--language", "de", "--held-out", 0.1, "--json")  # fmt: skip
    assert json.loads(build.stdout)["counts"]["documents"] == 200
    return folder


def test_inspect_says_what_is_there_and_shows_it(made):
    found = json.loads(run("corpus", "inspect", made / "shards", "--length", 64, "--sample", 300, "--json").stdout)
    assert found["sampled_examples"] >= 300
    assert sum(found["length_histogram"].values()) == found["sampled_examples"]
    assert found["pair_label_share"] == pytest.approx(0.5, abs=0.06)
    assert found["predicted_share"] == pytest.approx(0.15, abs=0.02)
    assert sum(found["shown_as"].values()) == pytest.approx(1)
    assert sum(found["span_shares"]) == pytest.approx(1)
    assert len(found["examples"]) == 3
    predicted = [piece for piece in found["examples"][0] if piece[2]]
    assert predicted
    text = run("corpus", "inspect", made / "shards", "--length", 64, "--sample", 100, "--show", 1).stdout
    assert "example 1, pair label" in text
    assert "unknown share of all" in text
    assert "[" in text.split("example 1")[1]


@pytest.mark.parametrize("layout", ["sentence-pair", "full-sentences", "doc-sentences"])
def test_inspect_takes_every_layout_and_the_held_out_part(layout, made):
    words = ["corpus", "inspect", made / "shards", "--layout", layout, "--part", "held-out", "--sample", 50, "--json"]
    found = json.loads(run(*words).stdout)
    assert found["part"] == "held-out"
    assert (found["pair_label_share"] is None) == (layout != "sentence-pair")


def test_building_again_by_command_does_nothing(made):
    before = (made / "shards" / "manifest.json").stat().st_mtime_ns
    words = [
        "corpus",
        "build",
        made / "text.txt",
        "--tokenizer",
        made / "tok",
        "--to",
        made / "shards",
        "--language",
        "de",
    ]
    out = run(*words, "--held-out", 0.1).stdout
    assert "next: litebert corpus inspect" in out
    assert (made / "shards" / "manifest.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["corpus", "inspect", "nowhere"], "no shards under nowhere; make them with: litebert corpus build"),
        (["corpus", "build", "nowhere.txt", "--tokenizer", "TOK", "--to", "x"], "no file or folder nowhere.txt"),
        (["corpus", "build", "x.txt", "--tokenizer", "nowhere", "--to", "x"], "no tokenizer file nowhere"),
        (
            ["corpus", "build", "x", "--tokenizer", "TOK", "--to", "x", "--workers", "2", "--ray", "local"],
            "--workers is for",
        ),
        (["corpus", "build", "x", "--tokenizer", "TOK", "--to", "x", "--held-out", "2"], "held_out = 2.0 must be"),
    ],
)
def test_mistakes_are_one_line(words, sentence, made):
    words = [made / "tok" if word == "TOK" else word for word in words]
    with pytest.raises(UserError) as problem:
        run(*words)
    assert str(problem.value).startswith(sentence)


def test_bench_corpus_compares_with_sentencepiece_alone(made):
    said = []
    found = bench_corpus([str(made / "text.txt")], made / "tok", workers=1, say=said.append)
    assert found["ratio"] == pytest.approx(found["litebert_seconds"] / found["sentencepiece_seconds"])
    assert found["sentences"] > 1000
    assert said
    assert "ratio" in run("bench", "corpus", made / "text.txt", "--tokenizer", made / "tok", "--workers", 1).stdout


@pytest.mark.filterwarnings("ignore:Random token replacement")
def test_bench_batches_compares_with_the_whole_word_collator(made):
    pytest.importorskip("transformers")
    found = bench_batches(made / "shards", length=64, size=16, repeats=2)
    ours, theirs = (found[f"{side}_pieces_per_second_and_core"] for side in ("litebert", "transformers"))
    assert found["ratio"] == pytest.approx(ours / theirs)
    assert min(ours, theirs, found["loader_pieces_per_second"]) > 0
