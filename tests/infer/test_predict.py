"""Predicting files: formats, ensembles, nothing lost or doubled when killed, memory that does not grow."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from litebert.cli import app
from litebert.config import HeadConfig, Reading, UserError
from litebert.infer.model import load
from litebert.infer.predict import asked, listen
from litebert.infer.stream import predict_file
from litebert.model.weights import build
from litebert.tasks.answers import Answers, average, best_threshold, decide
from litebert.tasks.example import Answer, Example, Task
from litebert.tasks.read import TASKS
from litebert.tasks.table import read_rows
from litebert.tasks.taught import Taught
from tests import forked
from tests.toys import WORDS, classes, questions, toy_model, write_rows

CLASSES = Task(kind="classify", labels=("bad", "good"), texts=("review",))
READING = Reading(length=32, question_length=16)


def taught(folder, task, head, seed=0, reading=READING):
    """A model that was taught nothing but says something."""
    model = load(toy_model(folder, seed=seed))
    network = build(model.config, (head,), seed)
    network.encoder.load_state_dict(model.encoder.state_dict())
    ready = replace(model, network=network, taught=Taught(task, reading))
    ready.save(folder)
    return folder


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return taught(tmp_path_factory.mktemp("c"), CLASSES, HeadConfig(kind="classify", labels=("bad", "good")))


@pytest.fixture(scope="module")
def answerer(tmp_path_factory):
    task = replace(TASKS["squad"], metrics=("f1", "em"))
    return taught(tmp_path_factory.mktemp("a"), task, HeadConfig(kind="span"))


def predict(*arguments):
    return CliRunner().invoke(app, ["predict", *map(str, arguments)])


def test_rows_keep_their_order_and_neighbours_change_nothing(classifier, tmp_path):
    rows = [{"review": " ".join(WORDS[:n])} for n in (3, 25, 1, 12, 7)]
    model = asked(load(classifier))
    examples = [Example(key=str(n), texts=(row["review"],)) for n, row in enumerate(rows)]
    together = [said for _, said, _ in listen([model], examples)]
    alone = [next(listen([model], [example]))[1] for example in examples]
    assert np.allclose(together, alone, atol=1e-6)
    said = predict(classifier, write_rows(tmp_path / "a.jsonl", rows), "--to", tmp_path / "o.jsonl", "--json")
    assert json.loads(said.stdout)["rows"] == 5
    written = [json.loads(line)["probabilities"]["good"] for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert np.allclose(written, [each[1] for each in together], atol=1e-5)


def test_several_models_are_averaged(classifier, tmp_path):
    other = taught(tmp_path / "other", CLASSES, HeadConfig(kind="classify", labels=("bad", "good")), seed=5)
    models = [asked(load(each)) for each in (classifier, other)]
    examples = [Example(key="1", texts=("the film was fine",))]
    one, two, both = (next(listen(chosen, examples))[1] for chosen in (models[:1], models[1:], models))
    assert not np.allclose(one, two)
    assert np.allclose(both, (one + two) / 2)
    unlike = taught(tmp_path / "unlike", Task(kind="regress"), HeadConfig(kind="regress"))
    with pytest.raises(UserError, match="taught different things"):
        next(listen([models[0], asked(load(unlike))], examples))


def test_answers_of_several_models_are_averaged_by_their_text():
    one = Answers(("a", "b"), (0.7, 0.3), -1.0)
    two = Answers(("c", "b"), (0.5, 0.5), 2.0)
    both = average([one, two])
    assert both.texts == ("b", "a", "c")
    assert both.probabilities == pytest.approx((0.4, 0.35, 0.25))
    assert both.none == 0.5


def test_the_threshold_is_the_best_of_all():
    rng = np.random.default_rng(0)
    golds, saids = [], []
    for _ in range(60):
        right = rng.random() < 0.6
        golds.append((Answer("yes", 0),) if right else ())
        saids.append(Answers(("yes" if rng.random() < 0.8 else "no",), (1.0,), rng.normal(-0.5 if right else 0.5)))
    task = Task(kind="answer", unanswerable=True)

    def f1(threshold):
        from litebert.tasks.answers import scores

        at = replace(task, threshold=float(threshold))
        examples = [Example(key="", texts=("", ""), target=gold) for gold in golds]
        return scores(at, examples, [decide(at, said) for said in saids])[0].value

    found = f1(best_threshold(golds, saids))
    tried = [f1(value) for value in np.linspace(-4, 4, 400)]
    assert found == pytest.approx(max(tried))
    assert found > f1(4)
    assert found > f1(-4)


def test_squads_own_format(answerer, tmp_path):
    asked_for = {"data": [{"paragraphs": [{"context": "the book was by ann", "qas": [
        {"id": "q1", "question": "who wrote it ?", "answers": []}, {"id": "q2", "question": "who ?", "answers": []}
    ]}]}]}  # fmt: skip
    (tmp_path / "dev.json").write_text(json.dumps(asked_for))
    assert predict(answerer, tmp_path / "dev.json", "--to", tmp_path / "o.json").exit_code == 0
    written = json.loads((tmp_path / "o.json").read_text())
    assert list(written) == ["q1", "q2"]
    assert all(answer and answer in "the book was by ann" for answer in written.values())


def test_glues_own_format(tmp_path):
    folder = taught(
        tmp_path / "m",
        TASKS["rte"],
        HeadConfig(kind="classify", labels=("entailment", "not_entailment")),
    )
    (tmp_path / "test.tsv").write_text("index\tsentence1\tsentence2\n0\tthe film\tit was\n1\ta book\tin rome\n")
    assert predict(folder, tmp_path, "--to", tmp_path / "RTE.tsv", "--format", "glue").exit_code == 0
    lines = (tmp_path / "RTE.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    assert [line.split("\t")[0] for line in lines[1:]] == ["0", "1"]
    assert {line.split("\t")[1] for line in lines[1:]} <= {"entailment", "not_entailment"}


@pytest.mark.parametrize(("mean", "scale"), [(0.0, 1.0), (3.1e6, 7e4), (1.7e9, 30.0), (2e-7, 1e-8)])
def test_a_csv_has_a_number_as_finely_as_jsonl_has_it(mean, scale, tmp_path):
    """Prices in the millions, seconds since 1970 and millionths lose nothing that the model tells apart."""
    task = Task(kind="regress", texts=("review",), mean=mean, scale=scale)
    folder = taught(tmp_path / "m", task, HeadConfig(kind="regress"))
    file = write_rows(tmp_path / "a.csv", classes(30))
    for name in ("o.csv", "o.jsonl"):
        assert predict(folder, file, "--to", tmp_path / name, "--device", "cpu").exit_code == 0
    exact = [json.loads(line)["prediction"] for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    written = [row["prediction"] for row in csv.DictReader((tmp_path / "o.csv").open())]
    assert [float(each) for each in written] == pytest.approx(exact, abs=1e-7 * scale, rel=1e-15)
    assert len({float(each) for each in written}) == len(set(exact)) > 3
    if mean == 0:
        assert max(len(each.strip("-0.").replace(".", "")) for each in written) <= 9


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_what_is_written_is_read_back_as_it_was(classifier, tmp_path, ending):
    keys = ['say "when"', "a, b", "c\td\ne"]
    file = write_rows(tmp_path / "a.jsonl", [{"id": key, "review": "the film"} for key in keys])
    assert predict(classifier, file, "--to", tmp_path / f"o.{ending}").exit_code == 0
    found = [row["id"] for _, row in read_rows(tmp_path / f"o.{ending}")]
    assert found == [*keys[:2], keys[2] if ending == "csv" else "c d e"]


def test_rows_whose_id_is_null_go_by_their_number(classifier, tmp_path):
    file = write_rows(tmp_path / "a.jsonl", [{"id": key, "review": "the film"} for key in ("x", None)])
    assert predict(classifier, file, "--to", tmp_path / "o.csv").exit_code == 0
    assert [row["id"] for _, row in read_rows(tmp_path / "o.csv")] == ["x", "2"]


def test_cut_texts_are_counted_and_said(classifier, tmp_path):
    rows = write_rows(tmp_path / "a.csv", [{"review": "the " * n} for n in (3, 60, 80)])
    said = predict(classifier, rows, "--to", tmp_path / "o.csv")
    assert "3 predictions" in said.stdout
    assert "2 texts were longer than 32 pieces and were cut" in said.stdout


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("a.csv", [{"text": "x"}], "a.csv, row 2: no column 'review'; there are: text"),
        ("a.csv", [{"review": "the film"}, {"review": ""}], "a.csv, row 3: the text in 'review' is empty"),
    ],
)
def test_bad_rows_are_named(classifier, tmp_path, name, rows, message):
    file = write_rows(tmp_path / name, rows)
    said = predict(classifier, file, "--to", tmp_path / "o.csv")
    assert message in str(said.exception)
    assert not (tmp_path / "o.csv").exists()


def test_wrong_formats_are_refused(classifier, tmp_path):
    file = write_rows(tmp_path / "a.csv", [{"review": "the film"}])
    for more, message in (
        (["--to", tmp_path / "o.json"], "SQuAD's format is for answers, and the model was taught classify"),
        (["--to", tmp_path / "o.xml"], "predictions are written as .csv, .tsv, .jsonl or .json"),
        (["--to", tmp_path / "o.csv", "--format", "xml"], "--format 'xml'; allowed: csv, tsv, jsonl, glue, squad"),
        (["--to", file], "is there already"),
    ):
        assert message in str(predict(classifier, file, *more).exception)


def test_a_model_that_was_taught_nothing_says_so(tmp_path):
    folder = toy_model(tmp_path / "m")
    file = write_rows(tmp_path / "a.csv", [{"text": "the film"}])
    said = predict(folder, file, "--to", tmp_path / "o.csv")
    assert "was taught no task" in str(said.exception)


def test_a_killed_prediction_goes_on_without_losing_or_doubling_a_row(classifier, tmp_path):
    """kill -9 at several moments of a file of some thousand rows."""
    rows = write_rows(tmp_path / "a.csv", [{"id": n, **row} for n, row in enumerate(classes(9000))])
    words = ["predict", str(classifier), str(rows), "--device", "cpu"]
    assert forked.run([*words, "--to", "whole.csv"], tmp_path).returncode == 0
    for wanted in (1, 2, 2):
        process = forked.Started([*words, "--to", "cut.csv"], tmp_path)
        while process.said().count("\n") < wanted:
            assert process.at_work(), process.said()
            time.sleep(0.005)
        process.send(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "cut.csv").exists()
    with open(tmp_path / "cut.csv.partial", "ab") as torn:
        torn.write(b"half a ro")
    last = forked.run([*words, "--to", "cut.csv", "--json"], tmp_path)
    assert json.loads(last.stdout)["resumed"] >= 1024
    assert (tmp_path / "cut.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert not list(tmp_path.glob("cut.csv.*"))


def test_what_another_command_left_is_not_gone_on_with(classifier, tmp_path):
    model = asked(load(classifier))
    examples = (Example(key=str(n), texts=("the film",)) for n in range(2000))

    def stop(_):
        raise InterruptedError("stopped")

    with pytest.raises(UserError, match="the same command goes on from row 1,024"):
        predict_file([model], examples, tmp_path / "o.csv", "csv", {"file": "a"}, stop)
    with pytest.raises(UserError, match="left by another command"):
        predict_file([model], iter(()), tmp_path / "o.csv", "csv", {"file": "b"})


@pytest.mark.parametrize("anew", ["the model", "the rows"])
def test_a_stopped_prediction_does_not_go_on_when_the_model_or_the_rows_were_written_anew(anew, tmp_path, monkeypatch):
    head = HeadConfig(kind="classify", labels=("bad", "good"))
    folder = taught(tmp_path / "m", CLASSES, head)
    rows = write_rows(tmp_path / "a.csv", classes(1500))
    words = (folder, rows, "--to", tmp_path / "o.csv", "--device", "cpu")

    def full(_):
        raise OSError("no space")

    with monkeypatch.context() as patch:
        real, counts = os.fsync, iter(range(1, 99))
        patch.setattr(os, "fsync", lambda file: full(file) if next(counts) == 4 else real(file))
        assert "goes on from row" in str(predict(*words).exception)
    if anew == "the model":
        taught(folder, CLASSES, head, seed=1)
    else:
        write_rows(rows, list(reversed(classes(1500))))
    assert "was left by another command (other models, rows," in str(predict(*words).exception)
    for left in tmp_path.glob("o.csv.*"):
        left.unlink()
    assert predict(*words).exit_code == 0


def test_memory_does_not_grow_with_the_rows(classifier, tmp_path):
    """From the second thousand rows to the last of twenty-four thousand: at most a few megabytes."""
    rng = np.random.default_rng(0)
    with open(tmp_path / "a.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["review"])
        for size in rng.integers(2, 25, 24_000):
            writer.writerow([" ".join(rng.choice(WORDS[:30], size))])
    command = [sys.executable, "-m", "litebert", "predict", str(classifier), str(tmp_path / "a.csv")]
    process = subprocess.Popen(
        [*command, "--to", str(tmp_path / "o.csv"), "--device", "cpu"], stderr=subprocess.PIPE, text=True
    )
    seen = []
    for line in process.stderr:
        if "rows" in line and (status := resident(process.pid)):
            seen.append((int(line.split()[0].replace(",", "")), status))
    assert process.wait() == 0
    assert seen[-1][0] > 20_000
    early = max(size for rows, size in seen if rows <= 9_000)
    late = max(size for rows, size in seen if rows > 18_000)
    assert late - early < 8 << 20, f"{(late - early) / 2**20:.1f} MiB more after twice the rows"


def resident(pid):
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        time.sleep(0)
        return 0


def test_a_question_is_read_in_windows_and_answered_from_any_of_them(answerer):
    model = asked(load(answerer))
    model = replace(model, reading=Reading(length=24, stride=8, question_length=8))
    rows = questions(20, 2)
    long = [Example(key="", texts=(row["question"], f"{row['context']} {'the book was in a ' * 8}")) for row in rows]
    for example, said, lost in listen([model], long):
        assert lost == 0
        assert 1 < len(said.texts) <= 20
        assert sum(said.probabilities) == pytest.approx(1)
        assert list(said.probabilities) == sorted(said.probabilities, reverse=True)
        assert all(text in example.texts[1] for text in said.texts)


def test_answers_are_no_longer_than_they_may_be(answerer):
    model = asked(load(answerer))
    example = Example(key="", texts=("who wrote it ?", "the book was in a film by ann"))
    longest = {}
    for most in (1, 3):
        brief = replace(model, reading=replace(model.reading, answer_length=most))
        longest[most] = max(len(text.split()) for text in next(listen([brief], [example]))[1].texts)
    assert longest == {1: 1, 3: 3}


class TestAsking:
    """The same answers from Python."""

    def test_classify(self, classifier):
        model = load(classifier)
        one, two = model.classify(["the film was fine", ("the film", "was poor")])
        assert one.value in ("good", "bad")
        assert one.probability == max(one.probabilities.values())
        assert sum(two.probabilities.values()) == pytest.approx(1)
        said = next(listen([asked(model)], [Example(key="", texts=("the film was fine",))]))[1]
        assert list(one.probabilities.values()) == pytest.approx(said.tolist(), abs=1e-6)

    def test_answer(self, answerer):
        told = load(answerer).answer("who wrote it ?", "the book was by ann")
        assert told.value in "the book was by ann"
        assert told.probability == told.probabilities[told.value]

    def test_tag_and_choose(self, tmp_path):
        tags = Task(kind="tag", labels=("O", "B-LOC"))
        tagger = load(taught(tmp_path / "t", tags, HeadConfig(kind="tag", labels=("O", "B-LOC"))))
        (one, two) = tagger.tag(["ann went to rome", ["in", "paris"]])
        assert len(one.value) == 4
        assert set(two.value) <= {"O", "B-LOC"}
        chooser = load(taught(tmp_path / "c", Task(kind="choice"), HeadConfig(kind="choice")))
        told = chooser.choose("the film was fine", ["a", "b", "in rome"])
        assert told.probabilities[str(told.value)] == max(told.probabilities.values())
        with pytest.raises(UserError, match="1 options leave nothing to choose"):
            chooser.choose("the film", ["a"])

    @pytest.mark.parametrize("odd", [None, float("nan"), 5, b"a book", ("a", "b", "c"), ("a", None), ()])
    def test_what_is_no_text_is_named_with_its_number(self, classifier, odd):
        """As an empty cell of a data frame is; and a third text is not left out without a word."""
        model = load(classifier)
        for ask in (model.classify, model.embed):
            with pytest.raises(UserError, match=r"text 1 is .{1,60}; give a text, or a pair of them"):
                ask(["a book", odd])

    def test_what_is_no_sentence_question_or_option_is_named(self, answerer, tmp_path):
        tags = Task(kind="tag", labels=("O", "B-LOC"))
        tagger = load(taught(tmp_path / "t", tags, HeadConfig(kind="tag", labels=("O", "B-LOC"))))
        chooser = load(taught(tmp_path / "c", Task(kind="choice"), HeadConfig(kind="choice")))
        for ask, sentence in (
            (lambda: tagger.tag(["a", None]), "sentence 1 is None; give a text, or a list of its words"),
            (lambda: tagger.tag([["a", 5]]), r"sentence 0 is \['a', 5\]; give a text"),
            (lambda: load(answerer).answer("who ?", None), "the question: None is not text"),
            (lambda: chooser.choose("a", "bc"), "options is a single text; give a list of them"),
            (lambda: chooser.choose("a", ["b", 5]), "the choice: 5 is not text"),
        ):
            with pytest.raises(UserError, match=sentence):
                ask()

    def test_a_model_is_not_asked_what_it_was_not_taught(self, classifier):
        model = load(classifier)
        for ask, what in (
            (lambda: model.tag(["a b"]), "tag words"),
            (lambda: model.answer("a", "b"), "answer questions"),
            (lambda: model.choose("a", ["b", "c"]), "choose among options"),
        ):
            with pytest.raises(UserError, match=rf"taught classify \(2 labels: bad, good\); it cannot {what}"):
                ask()
        with pytest.raises(UserError, match="a single text; give a list"):
            model.classify("the film")


def test_an_answer_says_where_in_the_passage_it_stands(answerer):
    """The place of the span that was meant, also where its words stand in the passage more than once."""
    model, places = load(answerer), set()
    for count in range(1, 8):
        words = ["ann", "the", "book", "ann", "was", "ann", "fine"] * count
        passage = "  ".join(words)
        told = model.answer("who wrote it ?", passage)
        assert passage[told.start :].startswith(told.value)
        places.add(passage.index(told.value) == told.start)
    assert False in places, "every answer was the first of its kind; this shows nothing"
