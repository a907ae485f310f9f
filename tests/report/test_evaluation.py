"""Evaluation: the numbers are right by hand, the page says them, and what cannot be evaluated is one line."""

import json
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from typer.testing import CliRunner

from litebert.cli import app
from litebert.config import HeadConfig, Reading, UserError
from litebert.infer.model import Model, load
from litebert.infer.predict import ask
from litebert.model.weights import build
from litebert.report import evaluation
from litebert.report.cases import around, as_case
from litebert.report.evaluation import calibrate, confusion, evaluate, label_scores, probability, worst
from litebert.report.page import write_report
from litebert.tasks.answers import Answers, decide
from litebert.tasks.example import Answer, Example, Task
from litebert.tasks.taught import Taught
from tests.corpus.conftest import tokenizer

__all__ = ["tokenizer"]

PNG = b"\x89PNG\r\n\x1a\n"
CLASSES = Task(kind="classify", labels=("bad", "good"), texts=("text",), label=("label",))
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
PASSAGE = "The harbour master counted the boats twice before breakfast."
HEADS = {  # kind of task: the task, its head
    "classify": (CLASSES, HeadConfig(kind="classify", labels=("bad", "good"))),
    "several": (
        Task(kind="several", labels=("red", "blue"), texts=("text",), label=("labels",)),
        HeadConfig(kind="classify", labels=("red", "blue"), several=True),
    ),
    "regress": (Task(kind="regress", texts=("text",), label=("label",)), HeadConfig(kind="regress")),
    "tag": (Task(kind="tag", labels=TAGS, texts=("tokens",), label=("tags",)), HeadConfig(kind="tag", labels=TAGS)),
    "answer": (Task(kind="answer", texts=("question", "context"), label=("answers",)), HeadConfig(kind="span")),
    "silent": (
        Task(kind="answer", unanswerable=True, texts=("question", "context"), label=("answers",)),
        HeadConfig(kind="span-beam"),
    ),
    "choice": (Task(kind="choice", texts=("text",), label=("label",)), HeadConfig(kind="choice")),
}
ROWS = {
    "classify": [
        {"text": "The <script>alert(1)</script> clock struck seven.", "label": "bad"},
        {"text": "Rain fell for three days.", "label": "good"},
        {"text": "Nobody remembered the lighthouse.", "label": "bad"},
        {"text": "They found the missing dog.", "label": "good"},
    ],
    "several": [
        {"text": "Rain fell for three days.", "labels": ["red"]},
        {"text": "Spring came early.", "labels": ["red", "blue"]},
        {"text": "They found the dog.", "labels": []},
    ],
    "regress": [{"text": text, "label": n + 0.5} for n, text in enumerate(("A dog.", "Rain fell.", "The old clock."))],
    "tag": [
        {"tokens": ["Mr.", "Hale", "walked", "home"], "tags": ["B-PER", "I-PER", "O", "O"]},
        {"tokens": ["Rain", "fell"], "tags": ["O", "O"]},
    ],
    "answer": [
        {"question": "Who counted the boats?", "context": PASSAGE, "answers": [{"text": "The harbour master"}]},
        {"question": "What did he count?", "context": PASSAGE, "answers": [{"text": "the boats"}]},
    ],
    "silent": [
        {"question": "Who counted the boats?", "context": PASSAGE, "answers": [{"text": "The harbour master"}]},
        {"question": "Who ate the apples?", "context": PASSAGE, "answers": []},
    ],
    "choice": [
        {"text": PASSAGE, "options": ["a dog", "the master", "rain"], "label": 1},
        {"text": "Rain fell.", "options": ["a dog", "rain"], "label": 1},
    ],
}


@pytest.fixture
def taught(tokenizer, small):
    """taught('tag'): a model with fresh weights that was taught that kind of task."""

    def make(kind="classify", seed=1, length=40, **task):
        made = tokenizer("unigram", "en")
        asked, head = HEADS[kind]
        network = build(small(vocab_size=len(made), positions=128), [head], seed=seed)
        return Model(network=network, tokenizer=made, taught=Taught(replace(asked, **task), Reading(length=length)))

    return make


@pytest.fixture
def saved(taught, tmp_path):
    """saved('tag'): the same as a folder, and a file of its kind."""

    def make(kind="classify", **more):
        folder, file = tmp_path / f"model-{kind}-{more.get('seed', 1)}", tmp_path / f"{kind}.jsonl"
        taught(kind, **more).save(folder)
        file.write_text("".join(json.dumps(row) + "\n" for row in ROWS[kind]))
        return str(folder), str(file)

    return make


def run(*words):
    return CliRunner().invoke(app, ["evaluate", *map(str, words)], catch_exceptions=False)


def as_json(*words):
    result = run(*words, "--json", "--device", "cpu")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def example(target, *texts, key="1"):
    return Example(key=key, texts=texts or ("a text",), target=target, where=f"here, row {key}")


def test_the_calibration_error_is_that_of_its_formula():
    found = calibrate([(0.9, True), (0.95, False), (0.62, True), (0.68, True), (1.0, True)])
    assert [each.count for each in found.bins] == [0, 0, 0, 0, 0, 0, 2, 0, 0, 3]
    assert found.bins[6].confidence == pytest.approx(0.65)
    assert (found.bins[6].accuracy, found.bins[9].accuracy) == (1.0, pytest.approx(2 / 3))
    assert found.error == pytest.approx(2 / 5 * 0.35 + 3 / 5 * (2.85 / 3 - 2 / 3))
    assert calibrate([(0.5, True), (0.5, False)]).error == 0


def test_confusion_counts_what_was_taken_for_what():
    golds, guesses = ("bad", "bad", "good", "good", "good"), ("bad", "good", "good", "good", "bad")
    rows = [example(gold) for gold in golds]
    assert confusion(CLASSES, rows, guesses).counts == ((1, 1), (1, 2))
    bad, good = label_scores(CLASSES, rows, guesses)
    assert (good.wanted, good.found, good.right) == (3, 3, 2)
    assert (bad.precision, bad.recall, bad.f1) == (0.5, 0.5, 0.5)


def test_tags_are_confused_by_word_and_counted_by_entity():
    task = HEADS["tag"][0]
    rows = [example(("B-PER", "I-PER", "O"), "Mr.", "Hale", "sat"), example(("B-LOC", "O"), "Rome", "is")]
    guesses = [("B-PER", "O", "O"), ("B-LOC", "O")]
    found = confusion(task, rows, guesses)
    assert found.labels == ("O", "PER", "LOC")
    assert found.counts == ((2, 0, 0), (1, 1, 0), (0, 0, 1))
    counts = {each.label: (each.wanted, each.found, each.right) for each in label_scores(task, rows, guesses)}
    assert counts == {"PER": (1, 1, 0), "LOC": (1, 1, 1)}


def test_tags_that_mark_no_spans_stand_for_a_word_each():
    task = Task(kind="tag", labels=("NOUN", "VERB"))
    rows, guesses = [example(("NOUN", "NOUN", "VERB"), "sea", "birds", "cry")], [("NOUN", "VERB", "VERB")]
    assert confusion(task, rows, guesses).counts == ((1, 1), (0, 1))
    counts = {each.label: (each.wanted, each.found, each.right) for each in label_scores(task, rows, guesses)}
    assert counts == {"NOUN": (2, 1, 1), "VERB": (1, 2, 1)}


def test_the_worst_are_the_wrong_ones_that_were_surest():
    rows = [example("bad", key=str(number)) for number in range(4)]
    found = worst(CLASSES, rows, ["good", "bad", "good", "good"], [0.6, 0.99, 0.9, 0.7])
    assert [(case.key, case.probability) for case in found] == [("2", 0.9), ("3", 0.7), ("0", 0.6)]
    many = [example("bad", key=str(number)) for number in range(50)]
    assert len(worst(CLASSES, many, ["good"] * 50, [0.6] * 50)) == evaluation.WORST


def test_the_worst_numbers_are_the_farthest_and_the_worst_sets_the_least_alike():
    rows = [example(value, key=str(value)) for value in (1.0, 2.0, 3.0)]
    found = worst(HEADS["regress"][0], rows, [1.5, 5.0, 2.0], [None] * 3)
    assert [case.key for case in found] == ["2.0", "3.0", "1.0"]
    rows = [example(("red", "blue"), key="half"), example(("red",), key="none"), example(("red",), key="right")]
    found = worst(HEADS["several"][0], rows, [("red",), ("blue",), ("red",)], [0.9, 0.5, 0.9])
    assert [case.key for case in found] == ["none", "half"]
    tagged = [example(("B-PER", "O", "B-LOC"), "a", "b", "c", key=key) for key in ("one", "both")]
    found = worst(HEADS["tag"][0], tagged, [("B-PER", "O", "O"), ("O", "O", "O")], [None] * 2)
    assert [case.key for case in found] == ["both", "one"]
    assert (found[0].gold, found[0].guess) == ("a (PER); c (LOC)", "(none)")


def test_numbers_are_told_in_what_they_count(saved, tmp_path):
    """How far they are off is a note, since it is no share; and no number has an exponent that people do not write."""
    rows = [example(150_000.0, key="a"), example(1_234_567.0, key="b")]
    found = worst(HEADS["regress"][0], rows, [150_000.0, 999_999.4], [None] * 2)
    assert [(case.gold, case.guess) for case in found] == [("1,234,567", "999,999")]
    model, file = saved("regress")
    found = as_json(model, "--data", file, "--to", tmp_path / "report")
    note = next(note for note in found["notes"] if "guesses are off by" in note)
    guesses = [each.value for each in load(model).classify([row["text"] for row in ROWS["regress"]])]
    apart = np.array(guesses) - [row["label"] for row in ROWS["regress"]]
    assert f"off by {np.abs(apart).mean():.6g} on average" in note
    assert f"root mean square {np.sqrt((apart**2).mean()):.6g}" in note
    assert note in (tmp_path / "report" / "index.html").read_text()
    assert not {"mean", "scale"} & set(found["task"])


def test_an_answer_is_as_probable_as_that_there_is_one_and_that_it_is_this():
    task = replace(HEADS["silent"][0], threshold=0.5)
    said = Answers(("the boats", "boats"), (0.8, 0.2), 0.0)
    assert probability(task, said, decide(task, said)) == pytest.approx(0.5 * 0.8)
    silent = replace(said, none=np.log(3))
    assert decide(task, silent) == ""
    assert probability(task, silent, "") == pytest.approx(0.75)
    assert probability(HEADS["answer"][0], replace(said, none=float("-inf")), "the boats") == 0.8


def test_several_labels_are_as_many_decisions(taught, monkeypatch):
    said = np.array([0.9, 0.2])
    monkeypatch.setattr(
        evaluation, "listen", lambda models, some, took: [took(1)] and [(each, said, 0) for each in some]
    )
    found = evaluate(ask(["m"], [taught("several")]), [example(("red", "blue"))])
    assert [(each.count, each.accuracy) for each in found.calibration.bins if each.count] == [(1, 0.0), (1, 1.0)]
    assert found.calibration.error == pytest.approx((0.8 + 0.1) / 2)
    assert found.worst[0].probability == pytest.approx(0.72)


def test_a_long_passage_is_shown_where_the_answer_stands():
    passage = "x " * 900 + "the needle" + " y" * 900
    row = example((Answer("the needle", 1800),), "Where?", passage)
    shown = as_case(HEADS["answer"][0], row, "x", 0.4)
    assert "the needle" in shown.texts[1]
    assert len(shown.texts[1]) < 410
    assert around(passage, 0).startswith("x x")
    assert as_case(HEADS["answer"][0], example((), "Where?", passage), "", 0.4).gold == "(no answer)"


@pytest.mark.parametrize("kind", list(HEADS))
def test_every_kind_of_task_gets_its_scores_and_its_figures(kind, saved, tmp_path):
    pytest.importorskip("matplotlib")
    model, file = saved(kind)
    to = tmp_path / "report"
    found = as_json(model, "--data", file, "--to", to)
    task = HEADS[kind][0]
    assert [score["name"] for score in found["scores"]] == list(task.metrics)
    assert all({"value", "error", "count"} <= set(score) for score in found["scores"])
    assert found["counts"] == {"examples": len(ROWS[kind]), "cut": 0}
    figures = {
        "classify": {"confusion", "calibration", "confidence"},
        "tag": {"confusion"},
        "regress": {"scatter"},
    }.get(kind, {"calibration", "confidence"})
    assert {path.stem for path in to.glob("*.png")} == figures
    assert all(path.read_bytes().startswith(PNG) for path in to.glob("*.png"))
    written = json.loads((to / "report.json").read_text())
    assert written == {key: value for key, value in found.items() if key != "report"}
    page = (to / "index.html").read_text()
    assert page.count("data:image/png;base64,") == len(figures)
    assert f"{100 * found['scores'][0]['value']:.2f}" in page
    assert f"± {100 * found['scores'][0]['error']:.2f}" in page
    assert not [path.name for path in to.iterdir() if path.suffix not in (".png", ".json", ".html")]


def test_the_scores_are_those_of_the_models_own_guesses(taught):
    model = taught("classify")
    asked = ask(["m"], [model])
    rows = [example(row["label"], row["text"]) for row in ROWS["classify"]]
    guesses = [decide(CLASSES, said) for _, said, _ in evaluation.listen(asked, rows)]
    found = evaluate(asked, rows)
    right = sum(guess == row.target for guess, row in zip(guesses, rows, strict=True))
    assert found.scores[0].value == right / 4
    assert len(found.worst) == 4 - right
    assert sum(map(sum, found.confusion.counts)) == 4


def test_several_models_are_averaged(saved):
    (one, file), (two, _) = saved(seed=1), saved(seed=2)
    apart = [as_json(model, "--data", file)["calibration"] for model in (one, two)]
    both = as_json(one, two, "--data", file)
    assert both["models"] == [one, two]
    assert both["calibration"] not in apart
    assert "what 2 models say is averaged" in both["notes"]
    rows = [example(row["label"], row["text"]) for row in ROWS["classify"]]
    shares = [[said for _, said, _ in evaluation.listen(ask([m], [load(m)]), rows)] for m in (one, two)]
    sure = np.mean(shares, axis=0).max(-1)
    bins = both["calibration"]["bins"]
    assert sum(each["count"] * each["confidence"] for each in bins) == pytest.approx(sure.sum(), rel=1e-5)


def test_the_page_shows_the_worst_and_lets_no_text_be_markup(saved, tmp_path):
    pytest.importorskip("matplotlib")
    model, file = saved(labels=("bad", "good"))
    found = as_json(model, "--data", file, "--to", tmp_path / "r")
    page = (tmp_path / "r" / "index.html").read_text()
    assert "<script" not in page
    assert found["worst"]
    for case in found["worst"]:
        row = next(part for part in re.findall(r"<tr>.*?</tr>", page) if unescape(part).find(case["texts"][0]) >= 0)
        assert f"<td>{case['gold']}</td><td>{case['guess']}</td>" in row
        assert f"{case['probability']:.3f}" in row
    assert [case["probability"] for case in found["worst"]] == sorted(
        (case["probability"] for case in found["worst"]), reverse=True
    )
    hostile = replace(CLASSES, labels=("<script>", "$\\frac{$"))
    row = example("<script>", "<script>x</script>")
    made = evaluation.Evaluation(
        task=hostile,
        scores=(),
        examples=1,
        cut=0,
        confusion=confusion(hostile, [row], ["$\\frac{$"]),
        labels=label_scores(hostile, [row], ["$\\frac{$"]),
        worst=worst(hostile, [row], ["$\\frac{$"], [0.5]),
    )
    write_report(tmp_path / "h", made, ["<script>"], "<script>.csv", "litebert <script>")
    text = (tmp_path / "h" / "index.html").read_text()
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 6


def test_many_labels_are_shown_by_their_commonest_mistakes(tmp_path):
    pytest.importorskip("matplotlib")
    labels = tuple(f"intent-{number}" for number in range(40))
    task = Task(kind="classify", labels=labels)
    rows = [example(label) for label in (*labels, *labels[:1] * 3)]
    guesses = [*labels[:39], labels[7], *labels[9:10] * 3]
    found = evaluation.Evaluation(
        task=task, scores=(), examples=len(rows), cut=0, confusion=confusion(task, rows, guesses)
    )
    write_report(tmp_path, found, ["m"], "d.csv", "litebert evaluate")
    cells = re.findall(
        r"<tr><td>(\S+)</td><td[^>]*>(\S+)</td><td[^>]*>(\d+)</td></tr>", (tmp_path / "index.html").read_text()
    )
    assert cells == [("intent-0", "intent-9", "3"), ("intent-39", "intent-7", "1")]


def test_a_new_report_leaves_no_figure_of_an_old_one(saved, tmp_path):
    pytest.importorskip("matplotlib")
    for kind in ("classify", "regress"):
        model, file = saved(kind)
        as_json(model, "--data", file, "--to", tmp_path / "r")
    assert [path.name for path in (tmp_path / "r").glob("*.png")] == ["scatter.png"]


def test_people_read_scores_errors_and_notes(saved, tmp_path):
    model, _ = saved(length=8)
    rows = [row for row in ROWS["classify"] if row["label"] == "bad"]
    (tmp_path / "bad.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = run(model, "--data", tmp_path / "bad.jsonl", "--device", "cpu")
    assert result.exit_code == 0
    assert re.search(r"accuracy +\d+\.\d\d +± \d+\.\d\d +2 *\n", result.stdout)
    assert "note: 2 of 2 texts are longer than the 8 pieces that are read, and were cut" in result.stdout
    assert "note: no example of 'good': the scores say nothing of it" in result.stdout
    assert "wrote" not in result.stdout


def test_columns_travel_with_the_model_and_can_be_said(saved, tmp_path):
    model, file = saved()
    (tmp_path / "other.csv").write_text("said,stars\nRain fell.,bad\nSpring came.,good\n")
    result = CliRunner().invoke(app, ["evaluate", model, "--data", str(tmp_path / "other.csv")])
    assert isinstance(result.exception, UserError)
    assert "row 2: no column 'text'" in str(result.exception)
    found = as_json(model, "--data", tmp_path / "other.csv", "--text", "said", "--label", "stars")
    assert found["counts"]["examples"] == 2
    assert found["command"].endswith("other.csv --text said --label stars")
    bare, _ = saved(seed=3, texts=(), label=())
    assert as_json(bare, "--data", file)["scores"][0]["count"] == 4


def test_a_benchmark_is_scored_by_its_own_metrics_in_its_own_order(saved, tmp_path):
    (tmp_path / "dev.tsv").write_text("index\tsentence1\tsentence2\tlabel\n0\tRain.\tIt fell.\tentailment\n")
    model, _ = saved(labels=("not_entailment", "entailment"), texts=(), label=())
    found = as_json(model, "--task", "rte", "--data", tmp_path)
    assert found["task"]["name"] == "rte"
    assert found["confusion"]["labels"] == ["entailment", "not_entailment"]
    assert [score["name"] for score in found["scores"]] == ["accuracy"]


def test_the_levels_of_race_are_scored_apart(saved, tmp_path):
    passage = {"article": PASSAGE, "questions": ["Who?"], "options": [["a", "b", "c", "d"]], "answers": ["B"]}
    rows = [passage | {"level": level, "id": level} for level in ("middle", "high", "high")]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = as_json(saved("choice")[0], "--task", "race", "--data", tmp_path)
    names = [(score["name"], score["count"]) for score in found["scores"]]
    assert names == [("accuracy", 3), ("accuracy (high)", 2), ("accuracy (middle)", 1)]


def test_the_threshold_is_the_models_or_chosen_on_these_very_questions(saved):
    always, file = saved("silent", threshold=1e9)
    never, _ = saved("silent", seed=2, threshold=-1e9)
    assert as_json(never, "--data", file)["scores"][1]["value"] == 0.5  # right where there is no answer
    assert all(case["guess"] != "(no answer)" for case in as_json(always, "--data", file)["worst"])
    found = as_json(always, "--data", file, "--tune-threshold")
    assert found["scores"][0]["value"] >= 0.5
    assert -1e8 < found["task"]["threshold"] < 1e8
    assert any("was chosen on these very questions" in note for note in found["notes"])
    assert found["command"].endswith("--tune-threshold")


def test_a_model_that_always_answers_says_so(saved, tmp_path):
    model, _ = saved("answer")
    _, file = saved("silent")
    assert any("it always answers" in note for note in as_json(model, "--data", file)["notes"])


def test_progress_counts_to_the_end(taught, monkeypatch):
    monkeypatch.setattr(evaluation, "A_FEW", 2)
    heard = []
    evaluate(ask(["m"], [taught()]), [example("bad")] * 5, say=heard.append)
    assert heard == [2, 4, 5]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "say what to score on: --data FILE, or --task NAME --data FOLDER"),
        (["--data", "{folder}"], "is a folder; give a file of examples, or say by --task which benchmark"),
        (["--data", "{file}", "--split", "dev"], "--split dev is a part of a benchmark"),
        (["--data", "{folder}", "--task", "rtee"], "unknown task 'rtee'; did you mean 'rte'?"),
        (["--data", "{folder}", "--task", "sst2"], r"sst2 asks for classify \(2 labels: 0, 1\), and the model was"),
        (["--data", "{folder}", "--task", "squad"], r"squad asks for answer, and the model was taught classify \(2"),
        (["--data", "{folder}", "--task", "rte", "--text", "a"], "has columns of its own"),
        (["--data", "{file}", "--tune-threshold"], "--tune-threshold is for questions that may have no answer"),
        (["--data", "{file}", "--to", "{file}"], "is a file; a report is a folder"),
        (["--data", "{file}", "--device", "tpu"], "--device 'tpu'; allowed: auto, cuda, cpu"),
        (["--data", "{folder}/none.csv"], "no file or folder"),
        (["--data", "{file}", "--to", "{file}/inside"], "cannot write .*: Not a directory; say another folder"),
        (["--data", "{torn}"], "row 1: half a surrogate pair stands there"),
        (["--data", "{empty}"], "holds no example; there is nothing to evaluate"),
    ],
)
def test_what_cannot_be_evaluated_is_one_line(words, sentence, saved, tmp_path):
    pytest.importorskip("matplotlib")
    model, file = saved()
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "torn.jsonl").write_text(json.dumps({"text": "half \ud800", "label": "bad"}))
    known = {"folder": tmp_path, "file": file} | {name: tmp_path / f"{name}.jsonl" for name in ("empty", "torn")}
    with pytest.raises(UserError, match=sentence) as problem:
        run(model, *(word.format(**known) for word in words))
    assert "\n" not in str(problem.value)


def test_splits_and_labels_that_are_not_there_are_one_line(saved, tmp_path):
    model, _ = saved(labels=("entailment", "not_entailment"))
    with pytest.raises(UserError, match="--split 'tset'; allowed: train, dev, test"):
        run(model, "--task", "rte", "--data", tmp_path, "--split", "tset")
    (tmp_path / "test.tsv").write_text("index\tsentence1\tsentence2\n0\tRain.\tIt fell.\n")
    with pytest.raises(UserError, match=r"test\.tsv, row 2: no label, so there is nothing to compare with"):
        run(model, "--task", "rte", "--data", tmp_path, "--split", "test")


def test_models_that_cannot_be_asked_are_named(saved, small, tokenizer, tmp_path):
    made = tokenizer("unigram", "en")
    Model(network=build(small(vocab_size=len(made))), tokenizer=made).save(tmp_path / "bare")
    model, file = saved()
    with pytest.raises(UserError, match=r"bare: this model was taught no task"):
        run(model, tmp_path / "bare", "--data", file)
    with pytest.raises(UserError, match="the models were taught different things"):
        run(model, saved("tag")[0], "--data", file)
    with pytest.raises(UserError, match="can say that a question has no answer and some cannot"):
        run(saved("answer")[0], saved("silent")[0], "--data", saved("answer")[1])


def test_without_matplotlib_the_extra_is_named(saved, tmp_path, monkeypatch):
    model, file = saved()
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match=r"pip install 'litebert\[plot\]'"):
        run(model, "--data", file, "--to", tmp_path / "r")
    assert not (tmp_path / "r").exists()
    assert as_json(model, "--data", file)["counts"]["examples"] == 4
