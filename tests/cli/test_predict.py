"""`litebert predict` without a file: texts that are typed, and texts that are piped in."""

import json
from dataclasses import replace
from functools import cache

import pytest
from typer.testing import CliRunner

from litebert.cli import app
from litebert.config import HeadConfig
from litebert.infer.model import load
from litebert.tasks.example import Task
from litebert.tasks.read import TASKS
from tests.infer.test_predict import taught

PAIR = ("bad", "good")
TAGS = ("O", "B-LOC")
TASK = {
    "classify": (Task(kind="classify", labels=PAIR, texts=("review",)), HeadConfig(kind="classify", labels=PAIR)),
    "pair": (TASKS["wnli"], HeadConfig(kind="classify", labels=TASKS["wnli"].labels)),
    "elsewhere": (Task(kind="classify", labels=PAIR), HeadConfig(kind="classify", labels=PAIR)),
    "regress": (Task(kind="regress", texts=("text",)), HeadConfig(kind="regress")),
    "tag": (Task(kind="tag", labels=TAGS, texts=("tokens",)), HeadConfig(kind="tag", labels=TAGS)),
    "answer": (replace(TASKS["squad"], metrics=("f1", "em")), HeadConfig(kind="span")),
    "choice": (Task(kind="choice", texts=("text",)), HeadConfig(kind="choice")),
}
PASSAGE = "the book was by ann"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """model('tag'): the folder of a model that was taught nothing but says something."""

    @cache
    def make(name="classify"):
        return taught(tmp_path_factory.mktemp(name), *TASK[name])

    return make


def predict(*words, piped=None):
    return CliRunner().invoke(app, ["predict", *map(str, words), "--device", "cpu"], input=piped)


def asked(*words):
    done = predict(*words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["answers"]


def told(folder, *words, piped):
    """The rows that answer what is piped in."""
    to = folder / "told.jsonl"
    to.unlink(missing_ok=True)
    done = predict(*words, "-", "--to", to, piped=piped)
    assert done.exit_code == 0, done.exception
    return [json.loads(line) for line in to.read_text().splitlines()]


class TestAsk:
    def test_typed_texts_are_answered_as_python_answers_them(self, model):
        texts = ["the film was fine", "a book"]
        found = asked(model(), "--ask", texts[0], "--ask", texts[1])
        mine = load(model()).classify(texts)
        assert [each["value"] for each in found] == [each.value for each in mine]
        assert found[0]["probabilities"] == pytest.approx(mine[0].probabilities)
        assert [each["texts"] for each in found] == [[text] for text in texts]
        (number,) = asked(model("regress"), "--ask", "up up")
        assert number["value"] == pytest.approx(load(model("regress")).classify(["up up"])[0].value)

    def test_pairs_have_their_second_text_by_and(self, model):
        words = ["--ask", "it was red", "--ask", "it was blue", "--and", "the film"]
        found = asked(model("pair"), *words)
        mine = load(model("pair")).classify([("it was red", "the film"), ("it was blue", "the film")])
        assert [each["probability"] for each in found] == pytest.approx([each.probability for each in mine])
        assert found[1]["texts"] == ["it was blue", "the film"]

    def test_questions_options_and_words(self, model):
        (found,) = asked(model("answer"), "--ask", "who wrote it ?", "--and", PASSAGE)
        assert found["value"] == load(model("answer")).answer("who wrote it ?", PASSAGE).value
        (found,) = asked(model("choice"), "--ask", "the film", "--and", "in rome", "--and", "by ann")
        assert found["value"] == load(model("choice")).choose("the film", ["in rome", "by ann"]).value
        (found,) = asked(model("tag"), "--ask", "ann went to rome.")
        assert found["value"] == list(load(model("tag")).tag(["ann went to rome."])[0].value)

    def test_the_terminal_shows_a_line_a_text_or_a_word(self, model):
        shown = predict(model(), "--ask", "the [b]film[/i] was fine", "--ask", "a book").stdout
        assert "the [b]film[/i] was fine" in shown
        assert shown.count("%") == 2
        shown = predict(model("tag"), "--ask", "ann went to rome").stdout
        assert shown.count("%") == 4
        shown = predict(model("choice"), "--ask", "the film", "--and", "in rome", "--and", "in rome").stdout
        assert shown.count("in rome") == 1

    def test_passes_and_settling_reach_a_typed_text(self, model):
        for name in ("classify", "tag"):
            assert "passes = 3 needs a trunk" in str(predict(model(name), "--ask", "a", "--passes", "3").exception)
        done = predict(model("tag"), "--ask", "a", "--settle", "0.1")
        assert "settle is for the kinds classify" in str(done.exception)

    @pytest.mark.parametrize(
        ("name", "words", "sentence"),
        [
            (
                "classify",
                ["a.csv", "--to", "o.csv", "--ask", "a"],
                "--ask is answered here, by one model: leave out FILE",
            ),
            ("classify", ["--to", "o.csv", "--ask", "a"], "leave out --to"),
            ("classify", ["--with", "m", "--ask", "a"], "leave out --with"),
            ("classify", [], "say what to answer: FILE --to ANSWERS, or a text by --ask TEXT"),
            ("classify", ["-"], "say where the answers go: --to answers.csv"),
            (
                "classify",
                ["a film."],
                "no file or folder a film.; a text that you type is answered by: --ask 'a film.'",
            ),
            ("classify", ["Who?", "--to", "o.csv"], "no file or folder Who?"),
            ("classify", ["--and", "b"], "--and says what stands beside the text of --ask"),
            ("classify", ["--ask", " "], "one of the texts is empty"),
            ("classify", ["--ask", "a", "--and", "b"], "this model reads review; leave --and out"),
            ("pair", ["--ask", "a"], "this model reads sentence1 and sentence2; give the second by --and"),
            ("pair", ["--ask", "a", "--and", "b", "--and", "c"], "2 texts by --and for 1 by --ask; give one for all"),
            ("answer", ["--ask", "a"], "this model reads question and context; give the second by --and"),
            ("tag", ["--ask", "a", "--and", "b"], "tags the words of one text; leave --and out"),
            ("choice", ["--ask", "a", "--and", "b"], "this model chooses: give one passage by --ask, and two options"),
        ],
    )
    def test_a_mistake_is_one_line(self, model, name, words, sentence, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        said = str(predict(model(name), *words).exception)
        assert sentence in said
        assert "\n" not in said
        assert not list(tmp_path.iterdir())


class TestPiped:
    def test_lines_are_texts(self, model, tmp_path):
        found = told(tmp_path, model(), piped="the film was fine\na book, red or blue\n")
        mine = load(model()).classify(["the film was fine", "a book, red or blue"])
        assert [each["prediction"] for each in found] == [each.value for each in mine]
        assert [each["id"] for each in found] == ["1", "2"]
        (found,) = told(tmp_path, model("tag"), piped="ann went to rome.\n")
        assert found["tokens"] == [word.text for word in load(model("tag")).tag(["ann went to rome."])[0].words]
        assert len(told(tmp_path, model("elsewhere"), piped="the film")) == 1

    def test_rows_are_json_or_a_csv_with_the_models_columns(self, model, tmp_path):
        as_json = "".join(json.dumps({"id": f"r{n}", "review": text}) + "\n" for n, text in enumerate(("a", "a book")))
        rows = told(tmp_path, model(), piped=as_json)
        assert [each["id"] for each in rows] == ["r0", "r1"]
        assert told(tmp_path, model(), piped="\ufeffid;review\nr0;a\nr1;a book\n") == rows
        (found,) = told(tmp_path, model("answer"), piped=json.dumps({"question": "who ?", "context": PASSAGE}))
        assert found["prediction"] in PASSAGE
        pair = json.dumps({"sentence1": "a", "sentence2": "b"})
        assert told(tmp_path, model("pair"), piped=pair)[0]["prediction"] in ("0", "1")

    @pytest.mark.parametrize(
        ("name", "piped", "sentence"),
        [
            ("classify", "", "standard input is empty; pipe texts into it"),
            ("classify", "a\n\nb\n", "standard input, row 2: the line is empty"),
            ("classify", '{"text": "a"}\n', "standard input, row 1: no column 'review'; there are: text"),
            ("classify", b"sch\xf6n\n", "standard input, row 1: byte 0xf6 at 3 is not UTF-8"),
            ("pair", "a\n", "standard input holds a text a line, and this model reads sentence1 and sentence2; give"),
            ("answer", "a\n", "and this model reads question and context; give JSONL"),
            ("choice", "a\n", "and this model reads text and options; give JSONL"),
        ],
    )
    def test_a_mistake_is_one_line_that_names_the_row(self, model, name, piped, sentence, tmp_path):
        said = str(predict(model(name), "-", "--to", tmp_path / "o.csv", piped=piped).exception)
        assert sentence in said
        assert not (tmp_path / "o.csv").exists()

    def test_a_plain_file_is_read_alike(self, model, tmp_path):
        (tmp_path / "a.txt").write_text("the film was fine\na book\n")
        assert predict(model(), tmp_path / "a.txt", "--to", tmp_path / "o.csv").exit_code == 0
        assert (tmp_path / "o.csv").read_text().count("\n") == 3
