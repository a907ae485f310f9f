"""Models measured side by side: in turns, on the same number of pieces, with the bytes that are really there."""

import json

import pytest
import torch

from litebert.bench import compare
from litebert.bench.infer import in_process, resident
from litebert.config import UserError
from litebert.infer.model import load
from litebert.tasks.metrics import Score
from tests.toys import toy_model


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    where = tmp_path_factory.mktemp("models")
    shapes = {"shared": "albert", "deep": "bert"}
    return {name: str(toy_model(where / name, family, layers=6)) for name, family in shapes.items()}


@pytest.fixture
def quick(monkeypatch):
    """No process of its own for memory."""
    monkeypatch.setattr(compare, "peak_memory", lambda word, precision, length: (1 << 20, ""))


def test_parameters_and_bytes_are_those_of_the_files(words, quick):
    found, common = compare.measure(words, {}, rounds=1)
    assert [each.name for each in found] == ["shared", "deep"]
    for each in found:
        weights = load(each.model).network.state_dict()
        assert each.parameters == sum(tensor.numel() for tensor in weights.values())
        assert 4 * each.parameters < each.bytes < 4 * each.parameters + 20_000  # and a header
        assert (each.stored, each.gpu_ms, each.scores) == ("float32", None, ())
        assert each.cpu_ms > 0 < each.cpu_per_second
    assert found[0].parameters < found[1].parameters / 3
    assert (common["length"], common["precision"]) == (64, "float32")  # as many as they take


def test_a_packed_model_counts_the_parameters_it_was_packed_from(words, quick):
    found, common = compare.measure({"deep": words["deep"]}, {}, rounds=1, precision="int8")
    assert found[0].parameters == compare.parameters(words["deep"])
    assert common["precision"] == "int8"


def test_models_take_turns_and_every_one_reads_as_many_pieces(words, monkeypatch, quick):
    seen = []
    monkeypatch.setattr(compare, "_work", lambda model, *words: lambda: seen.append((model.config.family, *words[:2])))
    compare.measure(words, {}, length=32, rounds=2)
    one = [family for family, batch, length in seen if (batch, length) == (1, 32)]
    assert one[:8] == ["albert", "bert"] * 2 + ["albert", "bert", "bert", "albert"]  # two warm-ups, then turned round
    assert {(batch, length) for _, batch, length in seen} == {(1, 32), (32, 32)}


def test_scores_come_along_by_name(words, quick):
    score = Score("accuracy", 0.5, 0.1, 20)
    found, _ = compare.measure(words, {"deep": (score,)}, rounds=1)
    assert [each.scores for each in found] == [(), (score,)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_gpu_is_measured_where_there_is_one(words, quick):
    found, common = compare.measure(words, {}, rounds=1, gpu=True)
    assert all(each.gpu_ms > 0 < each.gpu_per_second for each in found)
    assert common["device"] == torch.cuda.get_device_name()


def test_a_length_that_a_model_lacks_is_one_line(words):
    with pytest.raises(UserError, match="--length 65 does not fit the 64 positions of"):
        compare.measure(words, {}, length=65)


def test_other_types_on_disk_are_noted(words, tmp_path, quick):
    load(words["deep"]).save(tmp_path / "half", dtype=torch.bfloat16)
    found, common = compare.measure(words | {"half": str(tmp_path / "half")}, {}, rounds=1)
    assert found[2].stored == "bfloat16"
    assert found[2].bytes < 0.6 * found[1].bytes
    assert common["notes"] == ["the weights are stored in different types, which the bytes on disk show too"]


def test_weights_in_several_files_are_counted_together(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"12345")
    (tmp_path / "b.safetensors").write_bytes(b"123")
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors", "z": "a.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert compare.stored_bytes(str(tmp_path)) == 8


def test_peak_memory_is_that_of_a_process_of_its_own_and_grows_with_the_model(tmp_path):
    from litebert.config import ModelConfig
    from litebert.infer.model import Model
    from litebert.model.weights import build

    wide = ModelConfig(vocab_size=40_000, embedding_size=256, hidden_size=64, ffn_size=64, layers=1, heads=2)
    Model(network=build(wide, (), 0)).save(tmp_path / "m")
    found, note = compare.peak_memory(str(tmp_path / "m"), None, 16)
    assert note == ""
    assert 40_000 * 256 * 4 < found < 1 << 30
    left = in_process(resident, str(tmp_path / "m"), None, ((1, 16), (32, 16)))
    assert left <= found


def test_memory_that_cannot_be_measured_is_a_note(monkeypatch):
    def fails(*words):
        raise UserError("there is none here")

    monkeypatch.setattr(compare, "in_process", fails)
    assert compare.peak_memory("m", None, 8) == (None, "memory was not measured: there is none here")
