"""Cleaning: what has been there before, and what a benchmark holds."""

import json
import lzma

import pytest

from litebert.config import UserError
from litebert.corpus.clean import Benchmarks, Duplicates, paragraphs


def test_the_first_occurrence_stays(tmp_path):
    units = [f"unit {i % 700}" for i in range(10_000)]
    found = Duplicates(tmp_path)
    for unit in units:
        found.add(unit)
    found.close()
    assert [found[i] for i in range(len(units))] == [i >= 700 for i in range(10_000)]
    assert not list(tmp_path.iterdir())


def test_white_space_around_a_unit_does_not_make_it_another(tmp_path):
    found = Duplicates(tmp_path)
    for unit in ("a b", " a b\n", "a  b"):
        found.add(unit)
    found.close()
    assert [found[i] for i in range(3)] == [False, True, False]


def test_paragraphs_are_lines_with_something_in_them():
    assert paragraphs(" a \n\n\tb\n") == ["a", "b"]


PASSAGE = "The quick brown fox jumps over the lazy dog near the old river bank every single morning in spring."
QUESTION = "Where does the quick brown fox jump today?"


@pytest.mark.parametrize("name", ["b.json", "b.jsonl", "b.tsv", "b.csv", "c.csv", "b.txt", "b.json.xz"])
def test_a_document_that_holds_a_benchmarks_text_is_found(name, tmp_path):
    content = {
        "b.json": json.dumps({"data": [{"context": PASSAGE, "qas": [{"question": QUESTION}]}]}, indent=1),
        "b.jsonl": json.dumps({"a": PASSAGE}) + "\n" + json.dumps({"a": QUESTION}) + "\n",
        "b.tsv": f"1\t{PASSAGE}\t0\n2\t{QUESTION}\t1\n",
        "b.csv": f'id,text\n1,"{PASSAGE}"\n2,{QUESTION}\n',
        "c.csv": f"id;text\n1;{PASSAGE};by, and; by\n2;{QUESTION}\n",
        "b.txt": f"{PASSAGE}\n{QUESTION}\n",
    }[name.removesuffix(".xz")].encode()
    (tmp_path / name).write_bytes(lzma.compress(content) if name.endswith(".xz") else content)
    benchmarks = Benchmarks([tmp_path / name])
    assert benchmarks.inside(f"Before. {PASSAGE.upper()} After.")
    assert benchmarks.inside("x " + " ".join(PASSAGE.split()[2:16]) + " y")  # thirteen words in a row are enough
    assert not benchmarks.inside(" ".join(PASSAGE.split()[:12]))
    assert benchmarks.inside("He asked: where does the quick brown fox jump today? Nobody knew.")
    assert not benchmarks.inside("Where does the quick brown fox jump")
    assert not benchmarks.inside("")


def test_a_benchmark_without_a_text_to_look_for_is_said(tmp_path):
    (tmp_path / "b.txt").write_text("too short\n")
    with pytest.raises(UserError, match="holds no text of at least 8 words"):
        Benchmarks([tmp_path / "b.txt"])
    with pytest.raises(UserError, match="no benchmark file"):
        Benchmarks([tmp_path / "nowhere.txt"])
    (tmp_path / "b.jsonl").write_text('{"a": "x"}\n{"a"\n')
    with pytest.raises(UserError, match=r"b\.jsonl, row 2: not JSON"):
        Benchmarks([tmp_path / "b.jsonl"])


@pytest.mark.parametrize(
    ("name", "content", "where"),
    [
        ("b.json", "[" * 100_000, "b.json: "),
        ("b.json", "[\n" * 100_000, "b.json: "),
        ("b.jsonl", '{"a": "x"}\n' + "[" * 100_000, "b.jsonl, row 2: "),
    ],
    ids=["a value", "a value over lines", "a line"],
)
def test_a_benchmark_nested_too_deep_is_one_line(name, content, where, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=rf"{where}not JSON \(maximum recursion depth"):
        Benchmarks([tmp_path / name])
