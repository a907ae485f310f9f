"""`run.py`, which stands in an exported folder: it says what the model says, and how it is asked."""

import json
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from litebert.config import HeadConfig, Reading
from litebert.export.folder import export_onnx
from litebert.export.run import Misasked, Ran, words_of
from litebert.infer.model import Model, load
from litebert.model.weights import build
from litebert.tasks import words
from litebert.tasks.example import Task
from litebert.tasks.taught import Taught
from tests.corpus.conftest import tokenizer
from tests.toys import toy_model

__all__ = ["tokenizer"]

pytest.importorskip("onnx", reason="pip install 'litebert[onnx]'")
pytest.importorskip("onnxruntime", reason="pip install 'litebert[onnx]'")

TAGS = ("O", "B-PER", "I-PER", "B-LOC")
HEADS = {
    "fill": (None, HeadConfig(kind="mlm")),
    "tag": (Task(kind="tag", labels=TAGS), HeadConfig(kind="tag", labels=TAGS)),
    "answer": (Task(kind="answer"), HeadConfig(kind="span")),
    "unsure": (Task(kind="answer", unanswerable=True), HeadConfig(kind="span-beam")),
    "classify": (Task(kind="classify", labels=("bad", "good")), HeadConfig(kind="classify", labels=("bad", "good"))),
    "choice": (Task(kind="choice"), HeadConfig(kind="choice")),
}
TEXTS = ["Herr Müller wohnt in Köln.", "(Das sah er.) Warum?", "Es war, so Anns Bruder, spät – sehr spät…", "ja"]


@pytest.fixture
def both(tokenizer, small, tmp_path):
    """both(kind, tokenizer="unigram"): a model and its folder, run without it."""

    def make(kind, pieces="unigram", **more):
        task, head = HEADS[kind]
        made = tokenizer(pieces, "de")
        family = {"unigram": "albert", "wordpiece": "bert", "bpe": "roberta"}[pieces]
        config = small(family, vocab_size=len(made) + 4, positions=128, init_std=0.3)
        reading = Reading(length=96, question_length=32, answer_length=12)
        taught = None if task is None else Taught(replace(task, **more), reading)
        model = Model(network=build(config, [head], seed=1), tokenizer=made, taught=taught)
        export_onnx(model, tmp_path / kind)
        return model, Ran(tmp_path / kind, threads=1)

    return make


@pytest.mark.parametrize("pieces", ["unigram", "wordpiece", "bpe"])
@pytest.mark.parametrize("kind", ["answer", "unsure"])
def test_an_answer_is_the_models_with_its_probability(kind, pieces, both):
    model, ran = both(kind, pieces, threshold=100.0)
    for passage in TEXTS:
        told = model.answer("Wo wohnt er?", passage)
        assert ran.say(["Wo wohnt er?", passage]) == {
            "answer": told.value,
            "probability": pytest.approx(told.probability, abs=1e-5),
            "start": told.start,
        }


def test_an_answer_keeps_accents_that_the_model_does_not_see(tmp_path):
    """As a Mac writes them: a letter, and its accent after it."""
    base = load(toy_model(tmp_path / "toy"))
    network = build(base.config, [HEADS["answer"][1]], seed=1)
    model = replace(base, network=network, taught=Taught(HEADS["answer"][0], Reading(length=32, question_length=16)))
    export_onnx(model, tmp_path / "out")
    ran = Ran(tmp_path / "out", threads=1)
    for word in ("fi\u0301lm\u0301", "fine\u0301"):
        for passage in (word, f"{word} was"):
            said = ran.say(["who ?", passage])
            assert said["answer"] == model.answer("who ?", passage).value
            assert said["answer"].startswith(word) or said["answer"] == "was"


def test_no_answer_is_one_where_the_model_says_so(both):
    model, ran = both("unsure", threshold=-100.0)
    told = model.answer("Wo wohnt er?", TEXTS[0])
    assert told.value == ""
    said = ran.say(["Wo wohnt er?", TEXTS[0]])
    assert said == {"answer": "", "probability": pytest.approx(told.probability, abs=1e-5), "start": None}


@pytest.mark.parametrize("pieces", ["unigram", "wordpiece", "bpe"])
def test_a_word_has_the_tag_of_its_first_piece(pieces, both):
    model, ran = both("tag", pieces)
    long = " ".join(TEXTS * 4)  # more than is read
    for text in (*TEXTS, long):
        told = [asdict(word) for word in model.tag([text])[0].words]
        assert ran.say([text]) == [
            each | {"probability": pytest.approx(each["probability"], abs=1e-5)} for each in told
        ]
    assert told[-1]["probability"] < 1e-6, "all of it was read; this shows nothing"
    assert ran.say([" "]) == []


def test_words_are_split_as_the_model_splits_them():
    for text in (*TEXTS, "J. Smith's “U.N.” e-mails, ‘3.5’!!", "'s a..", "", "...", "cafe\u0301.", "Ann’S"):
        assert words_of(text) == words.words_of(text)


def test_what_touches_a_mask_continues_its_word(both):
    model, ran = both("fill")
    for text in ("Er sah den [MASK].", "Er [MASK] den [MASK] an", "[MASK] ."):
        told = [
            [(guess.piece, pytest.approx(guess.probability, abs=1e-5)) for guess in mask] for mask in model.fill(text)
        ]
        assert ran.say([text]) == told


@pytest.mark.parametrize(
    ("kind", "texts", "sentence"),
    [
        ("answer", ["Wo?"], "texts given: 1; this model is asked by: python run.py QUESTION PASSAGE"),
        ("unsure", ["Wo?"], "texts given: 1; this model is asked by: python run.py QUESTION PASSAGE"),
        ("choice", ["Er", "sah"], "texts given: 2; this model is asked by: python run.py PASSAGE OPTION OPTION …"),
        ("tag", ["Er", "sah"], "texts given: 2; this model is asked by: python run.py TEXT"),
        ("classify", [], r"texts given: 0; this model is asked by: python run.py TEXT \[SECOND TEXT\]"),
        ("classify", ["Er \udcff sah"], r"half a surrogate pair, which is no character; was the text cut, or .*\?"),
        ("fill", ["Er sah"], r"nothing to fill: write \[MASK\] where a word is missing"),
    ],
)
def test_what_cannot_be_asked_is_one_line(kind, texts, sentence, both):
    _, ran = both(kind)
    with pytest.raises(Misasked, match=f"^{sentence}$"):
        ran.say(texts)


def test_the_script_says_how_it_is_used(both, tmp_path):
    both("answer")

    def run(*words):
        return subprocess.run(
            [sys.executable, str(tmp_path / "answer" / "run.py"), *words], capture_output=True, text=True
        )

    asked = run("--help")
    assert asked.returncode == 0
    assert asked.stdout.startswith("usage: python run.py QUESTION PASSAGE\n")
    wrong = run("Wo wohnt er?")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == "texts given: 1; this model is asked by: python run.py QUESTION PASSAGE\n"
    assert set(json.loads(run("Wo wohnt er?", TEXTS[0]).stdout)) == {"answer", "probability", "start"}
