"""From raw text to a filled mask, in languages that are not English, accents kept."""

import json
import re
from dataclasses import replace

import pytest

import litebert
from litebert.config import UserError
from litebert.corpus.build import BuildOptions, build
from litebert.corpus.engines import Local
from litebert.recipe import apply_sets
from litebert.text.train import TrainSettings, train_tokenizer
from litebert.train.pretrain import pretrain
from litebert.train.processes import joined
from tests.train.conftest import MODEL

TEXTS = {  # language: subjects, verbs and objects that go together, in this order
    "de": (
        ["Der Bäcker", "Die Schülerin", "Das Mädchen"],
        ["öffnet", "übersetzt", "hört"],
        ["Türen", "Wörter", "Möwen"],
    ),
    "ru": (["Рыбак", "Ёжик", "Мой дед"], ["чинит", "ждёт", "поёт"], ["лодку", "ёлку", "ещё"]),
}


@pytest.mark.parametrize(("kind", "language"), [("wordpiece", "de"), ("unigram", "ru")])
def test_raw_text_becomes_a_model_that_fills_a_mask_with_its_accents(kind, language, tmp_path):
    lines = [f"{who} {does} {what}." for who, does, what in zip(*TEXTS[language], strict=True)]
    documents = [" ".join([f"{number}.", *(lines[(number + step) % 3] for step in range(4))]) for number in range(200)]
    text = tmp_path / "text.jsonl"
    text.write_text("".join(json.dumps({"text": each}) + "\n" for each in documents))
    tokenizer = largest_tokenizer(kind, documents)
    build([text], tokenizer, tmp_path / "shards", BuildOptions(language=language, held_out=0.1), Local(1))
    table = {
        "model": MODEL | {"layers": 2, "hidden_size": 64, "embedding_size": 64, "ffn_size": 256},
        "data": {"shards": str(tmp_path / "shards"), "mask": {"unit": "piece", "ngram": 1}},
        "phases": [{"length": 64, "batch": 16, "rate": 0.004, "warmup": 20}],
        "optimizer": {"kind": "adamw", "correct_bias": True},
        "run": {"steps": 400, "workers": 0, "hold": 0.5},
        "evaluate": {"every": 0, "final_examples": 64},
    }
    with joined("cpu") as processes:
        found = pretrain(apply_sets(table, []), tmp_path / "run", False, processes, lambda _: None)
    assert found["protocol"]["masked_accuracy"] > 0.8
    model = litebert.load(tmp_path / "run")
    who, does, what = (column[1] for column in TEXTS[language])
    assert not does.isascii()
    pieces = [tokenizer.piece(index) for index in tokenizer.encode(does).input_ids[1:-1]]
    guesses = model.fill(f"{who} {'[MASK]' * len(pieces)} {what}.", top=1)
    assert "".join(each[0].piece for each in guesses).replace("##", "").strip("▁") == does


def largest_tokenizer(kind, documents):
    """As many pieces as the text gives, so that frequent words are whole ones."""
    settings = TrainSettings(kind=kind, vocab_size=1000, keep_accents=True, cased=True)
    with pytest.raises(UserError, match=r"is more than the \d+ pieces this text gives") as problem:
        train_tokenizer(documents, settings)
    most = int(re.search(r"the (\d+) pieces", str(problem.value))[1])
    return train_tokenizer(documents, replace(settings, vocab_size=most))[0]
