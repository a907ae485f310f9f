"""SQuAD 2.0's dev file split in three: nothing is seen twice, and the last part is scored three ways."""

import json
from dataclasses import replace

import pytest

from litebert.bench.squad2 import bench_squad2, split_articles
from litebert.config import UserError
from litebert.recipe import TuneConfig
from tests.toys import questions, toy_model


@pytest.fixture
def file(tmp_path):
    """Twelve articles of some questions each, four in ten of which have no answer."""
    articles = []
    for number in range(12):
        paragraphs = []
        for at, row in enumerate(questions(20, number, 0.4)):
            found = [{"text": a["text"], "answer_start": row["context"].index(a["text"])} for a in row["answers"]]
            asked = {"id": f"{number}-{at}", "question": row["question"], "answers": found, "is_impossible": not found}
            paragraphs.append({"context": row["context"], "qas": [asked]})
        articles.append({"title": str(number), "paragraphs": paragraphs})
    (tmp_path / "dev.json").write_text(json.dumps({"data": articles}))
    return tmp_path / "dev.json"


def titles(path):
    return {article["title"] for article in json.loads(path.read_text())["data"]}


def test_articles_are_in_one_part_only_and_the_seed_decides(file, tmp_path):
    assert split_articles(file, tmp_path / "a", (6, 2, 4)) == [120, 40, 80]
    parts = [titles(tmp_path / "a" / f"{name}-v2.0.json") for name in ("train", "dev", "test")]
    assert [len(part) for part in parts] == [6, 2, 4]
    assert len(set.union(*parts)) == 12
    split_articles(file, tmp_path / "b", (6, 2, 4))
    split_articles(file, tmp_path / "c", (6, 2, 4), seed=1)
    assert titles(tmp_path / "b" / "test-v2.0.json") == parts[2] != titles(tmp_path / "c" / "test-v2.0.json")
    with pytest.raises(UserError, match=r"holds 12 articles, and 20 \+ 5 \+ 10 are wanted"):
        split_articles(file, tmp_path / "d")


def test_a_threshold_is_worth_something_on_articles_that_nothing_has_seen(file, tmp_path):
    tune = replace(TuneConfig(), epochs=8, batch=8, rate=3e-3, head_dropout=0.0)
    model = str(toy_model(tmp_path / "toy"))
    found = bench_squad2(model, file, tmp_path / "out", tune, (6, 2, 4), device="cpu")
    chosen, zero, always = (row["f1"]["value"] for row in found["rows"])
    assert chosen > always + 0.15
    assert zero <= 1
    assert [row["f1"]["count"] for row in found["rows"]] == [80, 80, 80]
    assert bench_squad2(model, file, tmp_path / "out", tune, (6, 2, 4), device="cpu") == found
