"""GLUE's files: every task's columns, the real files' counts, and one line for what is wrong in them."""

import gzip
import json
import lzma

import pytest

from litebert.config import UserError
from litebert.tasks.glue import GLUE, read_glue
from litebert.tasks.table import read_rows

COUNTS = {  # train, dev
    "cola": (8551, 1043),
    "sst2": (67349, 872),
    "mrpc": (3668, 408),
    "stsb": (5749, 1500),
    "rte": (2490, 277),
    "wnli": (635, 71),
    "qqp": (18000, 2212),
}


@pytest.mark.parametrize("name", COUNTS)
def test_the_real_files_hold_what_they_should(name, data):
    for split, count in zip(("train", "dev"), COUNTS[name], strict=True):
        examples = list(read_glue(name, data / "glue", split))
        assert len(examples) == count
        assert all(len(example.texts) == len(GLUE[name].texts) for example in examples)
        targets = {example.target for example in examples}
        assert targets == set(GLUE[name].labels) or (name == "stsb" and min(targets) == 0 and max(targets) == 5)


def test_json_lines_under_the_hubs_names_are_the_same_task(data):
    examples = list(read_glue("mnli", data / "glue" / "MNLI", "dev"))
    assert len(examples) == 9815
    assert {example.target for example in examples} == set(GLUE["mnli"].labels)


OFFICIAL = {  # a header and a row of GLUE's own, for the tasks whose files are not at hand
    "qnli": ("dev.tsv", "index\tquestion\tsentence\tlabel", "7\tWho?\tHe did.\tentailment", ("Who?", "He did.")),
    "mnli": (
        "dev_matched.tsv",
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
        "sentence2_parse\tsentence1\tsentence2\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label",
        "7\t1\t1n\tfiction\t(\t(\t(\t(\tA.\tB.\tneutral\tneutral\tneutral\tneutral\tneutral\tneutral",
        ("A.", "B."),
    ),
    "stsb": (
        "dev.tsv",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        '7\tnews\ta\t2015\t0\tx\ty\tA "quote.\tB.\t2.5',
        ('A "quote.', "B."),
    ),
    "qqp": (
        "dev.tsv",
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "7\t1\t2\tWhy?\tWhy not?\t1",
        ("Why?", "Why not?"),
    ),
}


@pytest.mark.parametrize("name", OFFICIAL)
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(("ending", "packed"), [("", open), (".gz", gzip.open), (".xz", lzma.open)])
def test_the_official_columns_are_read(name, inside, ending, packed, tmp_path):
    file, header, row, texts = OFFICIAL[name]
    folder = tmp_path / GLUE[name].name if inside else tmp_path
    folder.mkdir(exist_ok=True)
    with packed(folder / f"{file}{ending}", "wt") as handle:
        handle.write(f"{header}\n{row}\n")
    (example,) = read_glue(name, tmp_path, "dev")
    assert example.texts == texts
    assert example.key == "7"
    assert example.where.endswith("row 2")
    assert example.target in (*GLUE[name].labels, 2.5)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("sentence\tlabel\na b\t2\n", "row 2: unknown label '2'; allowed: 0, 1"),
        ("sentence\tlabel\na b\n", "row 2: 1 fields where there should be 2; mend or remove it"),
        ("sentence\tlabel\n  \t1\n", "row 2: the text in 'sentence' is empty"),
        ("sentance\tlabel\na\t1\n", "row 2: no column 'sentence'; did you mean 'sentance'?"),
        ("sentence\tlable\na\t1\n", "row 2: no column 'label'; did you mean 'lable'?"),
        ("sentence\tsentence\na\t1\n", "the column 'sentence' stands twice in the header"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_row(rows, sentence, tmp_path):
    (tmp_path / "train.tsv").write_text(rows)
    with pytest.raises(UserError) as problem:
        list(read_glue("sst2", tmp_path, "train"))
    assert str(problem.value).startswith(str(tmp_path / "train.tsv"))
    assert sentence in str(problem.value)


def test_a_score_that_is_no_number_is_named(tmp_path):
    (tmp_path / "train.jsonl").write_text(json.dumps({"sentence1": "a", "sentence2": "b", "score": "high"}) + "\n")
    with pytest.raises(UserError, match="row 1: 'high' is not a number"):
        list(read_glue("stsb", tmp_path, "train"))


def test_the_hubs_numbers_are_labels_and_minus_one_is_none(tmp_path):
    rows = [{"sentence1": "a", "sentence2": "b", "label": label, "idx": 3} for label in (1, -1)]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [example.target for example in read_glue("rte", tmp_path, "test")] == ["not_entailment", None]
    (tmp_path / "train.jsonl").write_text(json.dumps(rows[0] | {"label": 5}) + "\n")
    with pytest.raises(UserError, match="row 1: label 5 is none of 0 to 1"):
        list(read_glue("rte", tmp_path, "train"))


def test_a_task_or_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"unknown task 'ret'; did you mean 'rte'\?"):
        list(read_glue("ret", tmp_path, "train"))
    with pytest.raises(UserError, match=r"no dev_matched\.tsv or dev\.tsv or .* of MNLI in"):
        list(read_glue("mnli", tmp_path, "dev"))


def test_rows_come_from_every_kind_of_file(tmp_path):
    rows = [{"a": "x, y", "b": "é"}, {"a": 'say "z"', "b": "2"}]
    (tmp_path / "t.csv").write_text('a,b\n"x, y",é\n"say ""z""",2\n')
    (tmp_path / "t.tsv").write_text('a\tb\nx, y\té\nsay "z"\t2\n')
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = ["t.csv", "t.tsv", "t.jsonl"]
    try:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
        names.append("t.parquet")
    except ImportError:
        pass
    for name in names:
        assert [row for _, row in read_rows(tmp_path / name)] == rows, name
    (tmp_path / "t.txt").write_text("a")
    with pytest.raises(UserError, match="is plain text; rows come as"):
        list(read_rows(tmp_path / "t.txt"))


def test_the_holes_in_glues_question_pairs_are_passed_over(tmp_path):
    head = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    (tmp_path / "train.tsv").write_text(
        head + "1\t2\t3\tWho?\tWhom?\t1\n4\t5\t6\tWhy?\t\t0\n7\t8\t9\tHow?\n1\t2\t3\tA\tB\t0\n"
    )
    assert [example.target for example in read_glue("qqp", tmp_path, "train")] == ["1", "0"]
