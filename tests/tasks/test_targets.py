"""Cells of a user's file: what they may hold, and what is said of those that may not."""

import gzip
import json

import pytest

from litebert.config import UserError
from litebert.tasks.example import Answer, Task
from litebert.tasks.metrics import entity_f1
from litebert.tasks.own import guess_columns, infer_task, read_own
from litebert.tasks.read import benchmark, read_unlabelled
from litebert.tasks.targets import answers_of, choice_of, label_of, labels_of, number_of, options_of, words_and_tags


def rows(path, *some):
    path.write_text("".join(json.dumps(row) + "\n" for row in some))
    return path


def test_a_label_that_is_missing_is_no_class(tmp_path):
    for value in (None, float("nan"), "", "  "):
        with pytest.raises(UserError, match="row 7: no label in 'stars'"):
            label_of(value, "stars", "row 7")
    file = rows(tmp_path / "a.jsonl", {"text": "a", "label": "x"}, {"text": "b", "label": None})
    with pytest.raises(UserError, match=r"a\.jsonl, row 2: no label in 'label'"):
        infer_task(file)


def test_whole_numbers_are_named_alike_however_they_are_written():
    assert {label_of(value, "", "") for value in (1, 1.0, "1", " 1 ")} == {"1"}


@pytest.mark.parametrize("value", [10**400, float("inf"), float("nan"), None])
def test_what_no_float_holds_is_not_a_number(value):
    with pytest.raises(UserError, match=r"row 7: .{1,60} in 'stars' is not a number$"):
        number_of(value, "stars", "row 7")


def test_labels_in_one_field_may_stand_apart(tmp_path):
    assert labels_of("a | b", "", "") == ["a", "b"]
    assert labels_of("", "", "") == labels_of([], "", "") == []
    (tmp_path / "a.csv").write_text("text,label\nx,a | b\ny,b\n")
    task = infer_task(tmp_path / "a.csv", kind="several")
    assert task.labels == ("a", "b")
    assert [example.target for example in read_own(tmp_path / "a.csv", task)] == [("a", "b"), ("b",)]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("he", (Answer("he", 9),)),  # the word, not a part of another
        (["the"], (Answer("the", 0),)),
        ({"text": "man", "answer_start": 4}, (Answer("man", 4),)),
        ({"text": ["man"], "answer_start": [4]}, (Answer("man", 4),)),
        ([{"text": "man"}], (Answer("man", 4),)),
        ([], ()),
        (None, ()),
    ],
)
def test_answers_in_every_shape(value, found):
    assert answers_of(value, "the man, he", "row 1") == found


@pytest.mark.parametrize(
    "value",
    [
        [{"answer": "man"}],
        {"text": ["a"], "answer_start": [1, 2]},
        {"answer_start": 1},
        {"text": "man", "answer_start": 1e999},
    ],
)
def test_answers_in_no_shape_are_named(value):
    with pytest.raises(UserError, match=r"row 1: .* is no answer; give its text, or 'text' and 'answer_start'"):
        answers_of(value, "the man", "row 1")


def test_options_are_two_texts_or_more():
    assert options_of({"options": "red|blue"}, "") == ["red", "blue"]
    for value in (None, "red", ["red"], ["red", None], 7):
        with pytest.raises(UserError, match="row 1: 'options' holds"):
            options_of({"options": value}, "row 1")
    assert [choice_of(value, ["a", "b"], "") for value in (1, 1.0, "1", "B", "b")] == [1, 1, 1, 1, 1]


def test_a_choice_is_read_with_its_question(tmp_path):
    row = {"article": "Ann came.", "question": "Who _ ?", "options": ["ann", "bob"], "answer": "A"}
    file = rows(tmp_path / "a.jsonl", row, {**row, "question": "Who came?", "answer": "B"})
    task = infer_task(file)
    assert task.kind == "choice"
    first, second = read_own(file, task)
    assert first.texts == ("Ann came.", "Who ann ?", "Who bob ?")
    assert second.texts == ("Ann came.", "Who came? ann", "Who came? bob")
    assert (first.target, second.target) == (0, 1)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"tokens": ["a"], "tags": None}, "tags and spans come as a list"),
        ({"tokens": ["a"], "tags": "O"}, "tags and spans come as a list"),
        ({"tokens": ["a", "b"], "tags": ["O"]}, "2 words and 1 tags"),
        ({"text": "a b", "spans": [{"start": 0}]}, "needs 'start', 'end' and 'label'"),
        ({"text": "a b", "spans": [{"start": 1e999, "end": 9, "label": "x"}]}, "needs 'start', 'end' and 'label'"),
        ({"text": "a b", "spans": [[0, 1]]}, "needs 'start', 'end' and 'label'"),
        ({"text": "a b", "spans": [{"start": 5, "end": 9, "label": "x"}]}, "marks no word"),
        ({"text": "ann-bo", "spans": [{"start": 0, "end": 3, "label": "x"}, {"start": 4, "end": 6, "label": "y"}]},
         "marks a word that another marks already"),
    ],
)  # fmt: skip
def test_tags_that_do_not_fit_are_named(row, sentence):
    texts, label = (("tokens",), ("tags",)) if "tokens" in row else (("text",), ("spans",))
    with pytest.raises(UserError, match=f"row 1: .*{sentence}"):
        words_and_tags(row, texts, label, "row 1")


def test_parts_of_speech_are_scored_word_by_word(tmp_path):
    assert entity_f1([["DT", "NN", "VB"]], [["NN", "VB", "DT"]]) == 0
    assert entity_f1([["DT", "NN"]], [["DT", "VB"]]) == 0.5
    file = rows(tmp_path / "a.jsonl", {"tokens": ["the", "film"], "tags": ["DT", "NN"]})
    assert infer_task(file).labels == ("DT", "NN")


def test_conll_and_rows_mix_and_bare_words_are_predicted(tmp_path):
    (tmp_path / "a.conll").write_text("Ann B-PER\ncame O\n\nit O\n")
    with gzip.open(tmp_path / "b.conll.gz", "wt") as file:
        file.write("Bob B-PER\n")
    (tmp_path / "bare.conll").write_text("Eve\nleft\n")
    task = infer_task(tmp_path / "a.conll")
    assert [example.target for example in read_own(tmp_path / "b.conll.gz", task)] == [("B-PER",)]
    assert [example.texts for example in read_own(tmp_path / "bare.conll", task, labelled=False)] == [("Eve", "left")]
    other = rows(tmp_path / "c.jsonl", {"tokens": ["Ann"], "tags": ["B-PER"]})
    assert [example.target for example in read_own(other, task)] == [("B-PER",)]
    with pytest.raises(UserError, match="holds tags; --kind classify does not fit"):
        infer_task(tmp_path / "a.conll", kind="classify")


def test_columns_that_contradict_are_refused(tmp_path):
    file = rows(tmp_path / "a.jsonl", {"a": "x", "b": "y", "c": "z", "label": "p"})
    with pytest.raises(UserError, match=r"3 columns of text \(a, b, c\); give one, or two for pairs"):
        infer_task(file, ["a", "b", "c"])
    with pytest.raises(UserError, match="--kind several, not classify"):
        infer_task(file, ["a"], ["b", "c"], "classify")


def test_half_a_surrogate_pair_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a\\ud800", "label": "x"}\n{"text": "b", "label": "y"}\n')
    with pytest.raises(UserError, match=r"a\.jsonl, row 1: half a surrogate pair"):
        list(read_own(tmp_path / "a.jsonl", infer_task(tmp_path / "a.jsonl")))


def test_a_model_from_elsewhere_finds_its_columns(tmp_path):
    file = rows(tmp_path / "a.jsonl", {"sentence": "it rains"})
    task = Task(kind="classify", labels=("0", "1"))
    assert [example.texts for example in read_unlabelled(task, file)] == [("it rains",)]
    asked = rows(tmp_path / "q.jsonl", {"question": "Who?", "context": "Ann."})
    assert [example.texts for example in read_unlabelled(Task(kind="answer"), asked)] == [("Who?", "Ann.")]
    assert [example.texts for example in read_unlabelled(benchmark("squad"), asked)] == [("Who?", "Ann.")]
    chosen = rows(tmp_path / "c.jsonl", {"article": "Ann.", "options": ["a", "b"]})
    assert [example.texts for example in read_unlabelled(Task(kind="choice"), chosen)] == [("Ann.", "a", "b")]
    assert guess_columns(chosen, Task(kind="choice")).texts == ("article",)


def test_a_benchmarks_file_without_names_of_columns_is_read(tmp_path):
    (tmp_path / "dev.tsv").write_text("gj04\t1\t\tThe sailors rode.\ngj04\t0\t*\tThe rode.\n")
    found = list(read_unlabelled(benchmark("cola"), tmp_path / "dev.tsv"))
    assert [example.texts for example in found] == [("The sailors rode.",), ("The rode.",)]
    assert all(example.target is None for example in found)
    with pytest.raises(UserError, match="--split 'validation'; allowed: train, dev, test"):
        list(read_unlabelled(benchmark("cola"), tmp_path, "validation"))
