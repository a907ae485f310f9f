"""Rows of a user's file as spreadsheets write them: what stands between the fields, and in which encoding."""

import gzip

import pytest

from litebert.config import UserError
from litebert.tasks.own import infer_task, read_own
from litebert.tasks.table import read_rows


def rows(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return [row for _, row in read_rows(path)]


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_csv_is_read_by_what_stands_between_the_names_of_its_header(mark, tmp_path):
    text = (
        mark.join(["id", '"Text; oder, so"', "Note"]) + "\r\n" + mark.join(["1", '"a;b,c\td\n""e"""', "gut"]) + "\r\n"
    )
    assert rows(tmp_path / "a.csv", text, "utf-8-sig") == [
        {"id": "1", "Text; oder, so": 'a;b,c\td\n"e"', "Note": "gut"}
    ]


def test_a_comma_in_the_header_decides_and_so_does_the_ending_tsv(tmp_path):
    assert rows(tmp_path / "a.csv", "a;x,b\n1;2,3\n") == [{"a;x": "1;2", "b": "3"}]
    assert rows(tmp_path / "a.csv", "text\na;b\n") == [{"text": "a;b"}]
    assert rows(tmp_path / "a.tsv", "a;b\n1;2\n") == [{"a;b": "1;2"}]


def test_a_compressed_csv_with_semicolons_is_learned_from(tmp_path):
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write("\nRezension;Note\nSchön, sehr schön;gut\n" + "x" * 200_000 + ";schlecht\n")
    task = infer_task(tmp_path / "a.csv.gz", ["Rezension"], ["Note"])
    assert task.labels == ("gut", "schlecht")
    assert [len(each.texts[0]) for each in read_own(tmp_path / "a.csv.gz", task)] == [17, 200_000]


def test_empty_columns_beside_a_table_are_no_columns_of_it(tmp_path):
    assert [row["b"] for row in rows(tmp_path / "a.csv", "a,b,,\n1,2,,\n")] == ["2"]
    with pytest.raises(UserError, match=r"a\.csv: the column 'b' stands twice in the header"):
        rows(tmp_path / "a.csv", "a,b,,b\n1,2,,3\n")


def test_a_row_that_does_not_fit_says_by_which_mark(tmp_path):
    with pytest.raises(UserError, match=r"a\.csv, row 2: 1 fields where there should be 2, by the semicolons of the"):
        rows(tmp_path / "a.csv", "text;label\na,b\n")
    with pytest.raises(UserError, match=r"a\.csv, row 2: 1 fields where there should be 2; mend or remove it"):
        rows(tmp_path / "a.csv", "text,label\na;b\n")
    with pytest.raises(UserError, match=r"a\.csv, row 2: .* expected after .*; mend or remove it"):
        rows(tmp_path / "a.csv", 'text;label\n"a"b;c\n')


def numbers(path, mark, cells):
    """The column as it is learned from."""
    path.write_text(
        f"text{mark}price\n" + "".join(f'a{mark}"{cell}"\n' if mark == "," else f"a{mark}{cell}\n" for cell in cells)
    )
    return [each.target for each in read_own(path, infer_task(path, label=["price"], kind="regress"))]


def test_numbers_between_semicolons_may_have_decimal_commas(tmp_path):
    path = tmp_path / "a.csv"
    assert numbers(path, ";", ["3,5", "12", "-0,25", " 1.234,50"]) == [3.5, 12, -0.25, 1234.5]
    assert infer_task(path, label=["price"]).kind == "regress"
    assert numbers(path, ";", ["1,234", "950", "0,5"]) == [1.234, 950, 0.5]
    assert numbers(path, ";", ["1,5E+06", ",25"]) == [1.5e6, 0.25]
    path.write_text("text;mark\na;1,0\nb;1,3\nc;1,0\n")
    assert infer_task(path, label=["mark"], kind="classify").labels == ("1,0", "1,3")


@pytest.mark.parametrize(
    ("mark", "cells", "sentence"),
    [
        (",", ["3,5", "2,5"], "row 2: '3,5' in 'price' is not a number; write 3.5"),
        ("\t", ["3,5", "2,5"], "row 2: '3,5' in 'price' is not a number; write 3.5"),
        (",", ["1,234", "950"], "row 2: '1,234' in 'price' is not a number; write 1234 or 1.234"),
        ("\t", ["1,234", "0,5"], "row 2: '1,234' in 'price' is not a number; write 1234 or 1.234"),
        (";", ["950", "1,234", "12,000"], "row 3: '1,234' in 'price' is not a number; write 1234 or 1.234"),
        (";", ["1,5", "1,234,567"], "row 2: '1,5' in 'price' is not a number; write 1.5"),
        (";", ["1,5", "2.25"], "row 2: '1,5' in 'price' is not a number; write 1.5"),
        (";", ["1,5", "k.A."], "row 3: 'k.A.' in 'price' is not a number"),
        (";", ["1,5", "12.10.2020"], "row 3: '12.10.2020' in 'price' is not a number"),
    ],
)
def test_a_comma_that_may_not_be_decimal_is_never_guessed_at(mark, cells, sentence, tmp_path):
    with pytest.raises(UserError) as problem:
        numbers(tmp_path / "a.csv", mark, cells)
    assert str(problem.value).endswith(f"a.csv, {sentence}")


@pytest.mark.parametrize(("encoding", "row"), [("cp1252", 2), ("utf-16", 1)])
def test_a_file_in_another_encoding_is_to_be_saved_anew(encoding, row, tmp_path):
    with pytest.raises(UserError) as problem:
        rows(tmp_path / "a b.csv", "text,label\nschön,x\n", encoding)
    assert f"row {row}: byte " in str(problem.value)
    assert f"iconv -f {encoding} -t utf-8 '{tmp_path}/a b.csv' > out.csv" in str(problem.value)
    assert "if the whole file is written so, save it as UTF-8" in str(problem.value)
