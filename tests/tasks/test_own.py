"""A user's own file: its kind is seen, its rows are read, and what is wrong is named with its row."""

import json

import pytest

from litebert.config import UserError
from litebert.tasks.example import Answer, Task
from litebert.tasks.own import infer_task, is_plain, read_own


def csv(folder, text, name="a.csv"):
    (folder / name).write_text(text)
    return folder / name


def jsonl(folder, *rows):
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "a.jsonl"


def targets(path, task):
    return [example.target for example in read_own(path, task)]


def test_words_or_few_whole_numbers_are_classes(tmp_path):
    path = csv(tmp_path, "review,stars\ngood,5\nbad,1\nfine,10\nbad,1\n")
    task = infer_task(path, ["review"], ["stars"])
    assert (task.kind, task.labels) == ("classify", ("1", "5", "10"))  # numbers in their order
    assert targets(path, task) == ["5", "1", "10", "1"]
    assert task.describe() == "classify (3 labels: 1, 5, 10), from 'stars'"
    assert next(read_own(path, task)).texts == ("good",)
    path = csv(tmp_path, "text,label\na,yes\nb,no\n")
    assert infer_task(path).labels == ("no", "yes")


@pytest.mark.parametrize("values", [["1.5", "2", "3"], [str(n) for n in range(25)]])
def test_fractions_or_many_whole_numbers_are_a_quantity(values, tmp_path):
    path = csv(tmp_path, "text,label\n" + "".join(f"t{n},{value}\n" for n, value in enumerate(values)))
    task = infer_task(path)
    assert (task.kind, task.labels) == ("regress", ())
    assert targets(path, task) == [float(value) for value in values]
    assert infer_task(path, kind="classify").kind == "classify"


@pytest.mark.parametrize(
    ("odd", "said"), [("n/a", "'n/a'"), ("1e999", "'1e999'"), ('"1,234"', "'1,234'.*; write 1234 or")]
)
def test_a_few_cells_that_are_no_numbers_do_not_make_a_quantity_into_classes(odd, said, tmp_path):
    """Forty prices and a slip: before anything is learned, the slip is named."""
    path = csv(tmp_path, "text,price\n" + "".join(f"t{n},{n}.5\n" for n in range(40)) + f"t,{odd}\n")
    with pytest.raises(UserError, match=rf"row 42: {said}.*; mend that, or say --kind classify if the column holds"):
        infer_task(path, label=["price"])
    assert len(infer_task(path, label=["price"], kind="classify").labels) == 41
    few = csv(tmp_path, "text,label\n" + "a,1\nb,2\nc,3\n" * 20 + "d,unknown\n")
    assert infer_task(few).labels == ("1", "2", "3", "unknown")


def test_what_is_read_is_not_what_is_to_be_learned(tmp_path):
    path = csv(tmp_path, "text,label\na,x\nb,y\n")
    for texts, label in ((["label"], []), ([], ["text"]), (["text", "label"], ["label"])):
        with pytest.raises(
            UserError, match=r"'(text|label)' is read and is to be learned; say another column by --text or"
        ):
            infer_task(path, texts, label)


def test_two_texts_make_a_pair(tmp_path):
    path = csv(tmp_path, "q\ta\tok\nwho\tme\t1\nwhy\tno\t0\n", "a.tsv")
    task = infer_task(path, ["q", "a"], ["ok"])
    assert [example.texts for example in read_own(path, task)] == [("who", "me"), ("why", "no")]


def test_several_labels_at_once_in_three_ways(tmp_path):
    path = jsonl(tmp_path, {"text": "a", "labels": ["x", "y"]}, {"text": "b", "labels": []})
    task = infer_task(path)
    assert (task.kind, task.labels) == ("several", ("x", "y"))
    assert targets(path, task) == [("x", "y"), ()]
    path = csv(tmp_path, "text,label\na,x|y\nb,\n")
    task = infer_task(path, kind="several")
    assert task.labels == ("x", "y")
    assert targets(path, task) == [("x", "y"), ()]
    path = csv(tmp_path, "text,toxic,rude\na,1,0\nb,true,yes\nc,0,no\n")
    task = infer_task(path, label=["toxic", "rude"])
    assert (task.kind, task.labels) == ("several", ("toxic", "rude"))
    assert targets(path, task) == [("toxic",), ("toxic", "rude"), ()]


def test_labels_joined_by_bars_are_several_where_each_stands_in_several_combinations(tmp_path):
    path = csv(tmp_path, "text,label\na,x|y\nb,y\nc,x\nd,z\ne,x|y\n")
    task = infer_task(path)
    assert (task.kind, task.labels) == ("several", ("x", "y", "z"))
    assert targets(path, task) == [("x", "y"), ("y",), ("x",), ("z",), ("x", "y")]
    assert infer_task(path, kind="classify").labels == ("x", "x|y", "y", "z")
    path = csv(tmp_path, "text,label\na,and|or\nb,x\nc,and|or\n")
    assert infer_task(path).labels == ("and|or", "x")


def test_an_empty_field_among_labels_joined_by_bars_is_asked_about(tmp_path):
    path = csv(tmp_path, "text,label\na,\nb,y|x\nc,x\nd,y\n")
    with pytest.raises(UserError, match=r"row 2: no label in 'label'; .*; or say --kind several, if \| joins"):
        infer_task(path)
    assert targets(path, infer_task(path, kind="several"))[0] == ()
    with pytest.raises(UserError, match=r"row 2: no label in 'label'; fill it in, or leave the row out$"):
        infer_task(csv(tmp_path, "text,label\na,\nb,y\nc,x\n"))


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    ("more", "name", "version"), [({}, "squad", "v1.1"), ({"is_impossible": True}, "squad2", "v2.0")]
)
def test_squads_own_json_is_told_its_way(more, name, version, indent, tmp_path):
    question = {"id": "q", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}], **more}
    data = {"version": "1", "data": [{"title": "t", "paragraphs": [{"context": "Ann came.", "qas": [question]}]}]}
    (tmp_path / "qa.json").write_text(json.dumps(data, indent=indent))
    for read in (lambda path: infer_task(path), lambda path: list(read_own(path, Task(kind="answer")))):
        with pytest.raises(UserError) as problem:
            read(tmp_path / "qa.json")
        assert f"train-{version}.json and dev-{version}.json" in str(problem.value)
        assert str(problem.value).endswith(f"--task {name} --data FOLDER")
    (tmp_path / "rows.json").write_text(json.dumps({"text": '"data": [ "paragraphs": [', "label": "x"}) + "\n")
    assert next(read_own(tmp_path / "rows.json", Task(kind="regress", texts=("text",)), labelled=False)).key == "1"


def test_tags_from_conll_lists_and_spans(tmp_path):
    path = csv(tmp_path, "-DOCSTART- O\n\nAnn NNP B-PER\nHale NNP I-PER\nsailed VBD O\n\nOslo NNP B-LOC\n", "a.conll")
    task = infer_task(path)
    assert (task.kind, task.labels) == ("tag", ("O", "B-LOC", "B-PER", "I-PER"))
    found = list(read_own(path, task))
    assert [example.texts for example in found] == [("Ann", "Hale", "sailed"), ("Oslo",)]
    assert found[0].target == ("B-PER", "I-PER", "O")
    assert found[0].where.endswith("row 3")
    path = jsonl(tmp_path, {"tokens": ["Ann", "sailed"], "tags": ["B-PER", "O"]})
    assert targets(path, infer_task(path)) == [("B-PER", "O")]
    path = jsonl(tmp_path, {"text": "Ann Hale sailed.", "spans": [{"start": 0, "end": 8, "label": "PER"}]})
    (example,) = read_own(path, infer_task(path))
    assert example.texts == ("Ann", "Hale", "sailed", ".")  # as a text is split that is asked later
    assert example.target == ("B-PER", "I-PER", "O", "O")


def test_an_ending_in_capitals_is_that_ending(tmp_path):
    assert infer_task(csv(tmp_path, "text;label\na;x\nb;y\n", "A.CSV")).labels == ("x", "y")
    assert infer_task(csv(tmp_path, "a B-X\nb O\n", "a.CoNLL")).labels == ("O", "B-X")
    assert is_plain("A.TXT")


def test_answers_in_the_ways_they_are_written(tmp_path):
    row = {"question": "Who?", "context": "Ann and Bo."}
    for value in (
        {"text": ["Bo"], "answer_start": [8]},
        [{"text": "Bo", "answer_start": 8}],
        ["Bo"],
        "Bo",
    ):
        path = jsonl(tmp_path, row | {"answers": value})
        task = infer_task(path)
        assert task.kind == "answer"
        assert targets(path, task) == [(Answer("Bo", 8),)]
    path = jsonl(tmp_path, row | {"answers": {"text": [], "answer_start": []}})
    assert targets(path, infer_task(path)) == [()]


@pytest.mark.parametrize("said", [1, "1", "B", "b", "two"])
def test_choices_by_number_letter_or_text(said, tmp_path):
    path = jsonl(tmp_path, {"text": "p", "options": ["one", "two", "three"], "label": said})
    task = infer_task(path)
    (example,) = read_own(path, task)
    assert (task.kind, example.texts, example.target) == ("choice", ("p", "one", "two", "three"), 1)


def test_a_file_to_predict_needs_no_labels(tmp_path):
    task = infer_task(csv(tmp_path, "text,label\na,x\nb,y\n"))
    path = csv(tmp_path, "id,text\n7,hello\n", "new.csv")
    (example,) = read_own(path, task, labelled=False)
    assert (example.key, example.target) == ("7", None)
    with pytest.raises(UserError, match="row 2: no column 'label'; there are: id, text"):
        list(read_own(path, task))


@pytest.mark.parametrize(
    ("content", "kind", "sentence"),
    [
        ("text,label\na,z\n", None, "row 2: label 'z' is not in the training file; allowed: x, y"),
        ("text,label\n  ,x\n", None, "row 2: the text in 'text' is empty"),
        ("text,label\na\n", None, "row 2: 1 fields where there should be 2; mend or remove it"),
        ("txet,label\na,x\n", None, "row 2: no column 'text'; did you mean 'txet'?"),
        ("text,label\na,tall\n", "regress", "row 2: 'tall' in 'label' is not a number"),
    ],
)
def test_what_is_wrong_in_dev_is_named_with_its_row(content, kind, sentence, tmp_path):
    train = "text,label\na,x\nb,y\n" if kind is None else "text,label\na,1.5\n"
    task = infer_task(csv(tmp_path, train), kind=kind)
    path = csv(tmp_path, content, "dev.csv")
    with pytest.raises(UserError) as problem:
        list(read_own(path, task))
    assert str(problem.value).startswith(str(path))
    assert sentence in str(problem.value)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"tokens": ["a", "b"], "tags": ["O"]}, "row 1: 2 words and 1 tags"),
        ({"text": "ab", "spans": [{"start": 5, "end": 9, "label": "X"}]}, "row 1: the span 5 to 9 marks no word"),
        ({"question": "q", "context": "abc", "answers": ["z"]}, "row 1: the answer 'z' does not stand in the passage"),
        ({"text": "p", "options": ["a", "b"], "label": "E"}, "row 1: 'E' is none of the 2 options"),
        ({"body": "p", "label": "E"}, "row 1: no column 'text'; say which it is by --text: body, label"),
        ({"text": "p", "class": "E"}, "row 1: no column 'label'; say which it is by --label: text, class"),
    ],
)
def test_rows_that_make_no_sense_are_named(row, sentence, tmp_path):
    path = jsonl(tmp_path, row)
    with pytest.raises(UserError) as problem:
        list(read_own(path, infer_task(path)))
    assert sentence in str(problem.value)


def test_files_that_make_no_sense_are_named(tmp_path):
    path = csv(tmp_path, "text,label\n" + "".join(f"a,b{n}\n" for n in range(60)))
    with pytest.raises(UserError, match="'label' holds 60 different values in 60 rows, no set of labels"):
        infer_task(path)
    assert len(infer_task(path, kind="classify").labels) == 60
    path = csv(tmp_path, "text,label\n" + "".join(f"a,{n}.50 EUR\n" for n in range(30)))
    with pytest.raises(UserError, match="'label' holds 30 different values in 30 rows, no set of labels"):
        infer_task(path)
    with pytest.raises(UserError, match="holds no row"):
        infer_task(csv(tmp_path, "text,label\n"))
    with pytest.raises(UserError, match="row 1: 1 field where a word and its tag should be"):
        infer_task(csv(tmp_path, "word\n", "a.conll"))
    path = csv(tmp_path, "text,a,b\nx,maybe,0\n")
    task = infer_task(path, label=["a", "b"])
    with pytest.raises(UserError, match="row 2: 'maybe' in 'a' is neither yes nor no"):
        list(read_own(path, task))
