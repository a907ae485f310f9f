"""RACE: both layouts, levels, the blank, and what is kept of long passages and options."""

import json

import pytest

from litebert.config import Reading, UserError
from litebert.tasks.example import Example, Task
from litebert.tasks.features import units
from litebert.tasks.race import read_race, with_option
from tests.corpus.conftest import tokenizer

__all__ = ["tokenizer"]

PASSAGE = {
    "id": "high7.txt",
    "level": "high",
    "article": "Ann sailed home.",
    "questions": ["Who _ ?", "Where did she go?"],
    "options": [["a", "b", "c", "d"], ["e", "f", "g", "h"]],
    "answers": ["B", "D"],
}


def test_the_real_files_hold_what_they_should(data):
    for split, count in (("dev", 4887), ("test", 4934)):
        both = list(read_race(data / "race", split))
        assert len(both) == count
        assert {example.group for example in both} == {"middle", "high"}
        levels = [len(list(read_race(data / "race", split, level))) for level in ("middle", "high")]
        assert sum(levels) == count
        assert {example.target for example in both} == {0, 1, 2, 3}
        assert all(len(example.texts) == 5 for example in both)


def test_folders_of_the_download_are_read_as_well(tmp_path):
    for level in ("middle", "high"):
        (tmp_path / "dev" / level).mkdir(parents=True)
    (tmp_path / "dev" / "high" / "7.txt").write_text(json.dumps({k: v for k, v in PASSAGE.items() if k != "level"}))
    (tmp_path / "dev" / "middle" / "10.txt").write_text(json.dumps(PASSAGE | {"level": "middle", "id": "middle10.txt"}))
    found = list(read_race(tmp_path, "dev"))
    assert [example.group for example in found] == ["high", "high", "middle", "middle"]
    assert found[0].texts == ("Ann sailed home.", "Who a ?", "Who b ?", "Who c ?", "Who d ?")
    assert found[1].texts[1] == "Where did she go? e"
    assert [example.target for example in found[:2]] == [1, 3]
    assert [example.key for example in read_race(tmp_path, "dev", "middle")] == ["middle10.txt-0", "middle10.txt-1"]


def test_every_blank_is_filled():
    assert with_option("_ and _", "x") == "x and x"


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_the_passage_loses_its_end_and_the_option_its_beginning(kind, tokenizer):
    made = tokenizer(kind, "en")
    passage, option = "The harbour master counted the boats. " * 30, "why " * 80 + "because"
    reading = Reading(length=96, question_length=20)
    example = Example(key="1", texts=(passage, option, "why"), target=1)
    (unit,) = units(made, Task(kind="choice"), [example], reading)
    ids, types = unit.ids[0].tolist(), unit.types[0].tolist()
    assert len(ids) == len(types) == 96
    asked, read = (made.encode(text).input_ids for text in (option, passage))
    between = 2 if made.double_separator else 1
    assert ids[-21:] == [*asked[1:-1][-20:], made.sep_id]
    assert ids[:40] == read[:40]
    assert types == [0] * (96 - 21) + [0 if between == 2 else 1] * 21
    assert unit.lost == len(read) - 2 - (96 - 2 - between - 20) + len(asked) - 2 - 20
    assert unit.target == 1
    (short,) = units(made, Task(kind="choice"), [Example(key="1", texts=("A boat.", "why"))], reading)
    assert len(short.ids[0]) < 96
    assert short.lost == 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"answers": ["B", "E"]}, "row 1: answer 'E' is none of A, B, C, D"),
        ({"options": [["a"]]}, "row 1: 2 questions, 1 lists of options"),
        ({"questions": None}, "row 1 is not a passage of RACE"),
        ({"level": "", "id": "x"}, "row 1: no 'level', and the id 'x' does not begin with middle or high"),
    ],
)
def test_what_is_wrong_is_named_with_its_row(change, sentence, tmp_path):
    (tmp_path / "dev.jsonl").write_text(json.dumps(PASSAGE | change) + "\n")
    with pytest.raises(UserError) as problem:
        list(read_race(tmp_path, "dev"))
    assert sentence in str(problem.value)


def test_what_is_not_there_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"no dev\.jsonl and no dev/middle/\*\.txt in"):
        list(read_race(tmp_path, "dev"))
    with pytest.raises(UserError, match="level = 'low'; allowed: middle, high, both"):
        list(read_race(tmp_path, "dev", "low"))
