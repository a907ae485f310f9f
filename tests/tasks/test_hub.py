"""Data sets in the layout that the hub has: Parquet in parts, a folder a task, by name or as a local copy."""

import pytest

from litebert.config import UserError
from litebert.tasks.example import Answer
from litebert.tasks.hub import fetch
from litebert.tasks.read import benchmark, read_split

arrow = pytest.importorskip("pyarrow", reason="pip install 'litebert[corpus]'")
parquet = pytest.importorskip("pyarrow.parquet")


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(arrow.Table.from_pylist(rows), path)


@pytest.fixture
def hub(tmp_path):
    """A little of three data sets as they lie on the hub."""
    rte = {"sentence1": "It rains.", "sentence2": "It is wet.", "idx": 0}
    for part in (0, 1):
        write(tmp_path / "glue" / "rte" / f"train-0000{part}-of-00002.parquet", [rte | {"label": part, "idx": part}])
    write(tmp_path / "glue" / "rte" / "validation-00000-of-00001.parquet", [rte | {"label": 1}])
    write(tmp_path / "glue" / "rte" / "test-00000-of-00001.parquet", [rte | {"label": -1}])
    question = {"id": "q", "question": "Who?", "context": "Ann came.", "title": "t"}
    right = {"answers": {"text": ["Ann"], "answer_start": [0]}}
    write(tmp_path / "squad" / "plain_text" / "validation-00000-of-00001.parquet", [question | right])
    none = {"answers": {"text": ["x"][:0], "answer_start": [0][:0]}}
    write(tmp_path / "squad_v2" / "squad_v2" / "train-00000-of-00001.parquet", [question | right, question | none])
    race = {"example_id": "high3.txt", "article": "Ann came.", "question": "Who _ ?", "options": list("abcd")}
    write(tmp_path / "race" / "all" / "validation-00000-of-00001.parquet", [race | {"answer": "C"}])
    return tmp_path


def test_glue_in_parts(hub):
    examples = list(read_split(benchmark("rte"), hub / "glue", "train"))
    assert [(each.key, each.target) for each in examples] == [("0", "entailment"), ("1", "not_entailment")]
    assert [each.target for each in read_split(benchmark("rte"), hub / "glue", "dev")] == ["not_entailment"]
    assert [each.target for each in read_split(benchmark("rte"), hub / "glue", "test")] == [None]


def test_squad_as_rows(hub):
    (one,) = read_split(benchmark("squad"), hub / "squad", "dev")
    assert (one.key, one.texts, one.target) == ("q", ("Who?", "Ann came."), (Answer("Ann", 0),))
    both = list(read_split(benchmark("squad2"), hub / "squad_v2", "train"))
    assert [each.target for each in both] == [(Answer("Ann", 0),), ()]


def test_race_as_rows(hub):
    (one,) = read_split(benchmark("race"), hub / "race", "dev")
    assert one.texts == ("Ann came.", "Who a ?", "Who b ?", "Who c ?", "Who d ?")
    assert (one.target, one.group) == (2, "high")


def test_a_name_on_the_hub_is_fetched(hub, monkeypatch):
    hugging = pytest.importorskip("huggingface_hub", reason="pip install 'litebert[hub]'")
    asked = []

    def snapshot(name, **more):
        asked.append((name, more["repo_type"]))
        return str(hub / "glue")

    monkeypatch.setattr(hugging, "snapshot_download", snapshot)
    assert len(list(read_split(benchmark("rte"), "nyu-mll/glue", "train"))) == 2
    assert asked == [("nyu-mll/glue", "dataset")]


def test_what_is_neither_a_folder_nor_a_name_is_one_line():
    with pytest.raises(UserError, match="no folder /no/such/place"):
        list(read_split(benchmark("rte"), "/no/such/place", "train"))
    with pytest.raises(UserError, match="no folder no/such, and the hub did not give it"):
        list(read_split(benchmark("rte"), "no/such", "train"))


def test_a_name_that_is_all_but_that_of_the_shipped_model_is_told_it():
    with pytest.raises(UserError, match=r"no folder litebert-bas.*; did you mean 'litebert-base'\?$"):
        fetch("litebert-bas", ["*.json"])
    with pytest.raises(UserError) as problem:
        fetch("albert-base", ["*.json"])
    assert "did you mean" not in str(problem.value)
