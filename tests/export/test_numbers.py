"""Numbers that were taught as deviations leave in their own units, whoever reads the files."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from litebert.config import HeadConfig, Reading, UserError
from litebert.export import folder as exporting
from litebert.export.engine import run_by_onnx
from litebert.export.folder import export_onnx
from litebert.export.hf import export_hf
from litebert.infer.loop import open_session
from litebert.infer.model import Model, load
from litebert.model.weights import build
from litebert.tasks.example import Task
from litebert.tasks.taught import Taught
from tests.toys import toy_model

TEXTS = ["the film was fine .", "eve wrote the book in london", "up"]
COUNTED = [(150_000.0, 70_000.0), (2005.0, 8.0), (-1e-5, 1e-6)]


def counted(folder, mean, scale, family="albert"):
    base = load(toy_model(folder, family))
    network = build(base.config, (HeadConfig(kind="regress"),), 0)
    task = Task(kind="regress", texts=("text",), label=("label",), mean=mean, scale=scale)
    return Model(network=network, tokenizer=base.tokenizer, taught=Taught(task, Reading(length=32, question_length=16)))


def told(model):
    return np.array([each.value for each in model.classify(TEXTS)])


@pytest.mark.parametrize("family", ["albert", "bert", "distilbert"])
@pytest.mark.parametrize(("mean", "scale"), COUNTED)
def test_a_folder_for_transformers_says_the_numbers_themselves(mean, scale, family, tmp_path):
    peer = pytest.importorskip("transformers")
    model = counted(tmp_path / "toy", mean, scale, family)
    before = told(model)
    assert export_hf(model, tmp_path / "hf") == export_hf(replace(model, taught=None), tmp_path / "bare")
    theirs = peer.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hf").eval()
    ids = [torch.tensor([model.tokenizer.encode(text).input_ids]) for text in TEXTS]
    with torch.no_grad():
        said = [theirs(each).logits.item() for each in ids]
    assert said == pytest.approx(before, abs=1e-4 * scale + 1e-6 * abs(mean))
    assert told(load(tmp_path / "hf")) == pytest.approx(before, abs=1e-4 * scale + 1e-6 * abs(mean))
    assert np.array_equal(told(model), before)  # the model itself is as it was


def test_few_digits_do_not_round_the_numbers_away(tmp_path):
    model = replace(counted(tmp_path / "toy", 2005.0, 8.0), stored=torch.bfloat16)
    notes = export_hf(model, tmp_path / "hf")
    assert "in float32, not bfloat16: the head says numbers as they are, which bfloat16 would round" in notes
    assert told(load(tmp_path / "hf")) == pytest.approx(told(model), abs=0.01)
    plain = replace(model, taught=replace(model.taught, task=replace(model.taught.task, mean=0.0, scale=1.0)))
    assert not export_hf(plain, tmp_path / "plain")
    assert load(tmp_path / "plain").stored == torch.bfloat16


@pytest.mark.parametrize(("mean", "scale"), COUNTED)
def test_an_onnx_file_says_the_numbers_themselves(mean, scale, tmp_path):
    pytest.importorskip("onnxruntime")
    model = counted(tmp_path / "toy", mean, scale)
    written = export_onnx(model, tmp_path / "onnx")
    assert written.difference < 1e-4  # in deviations
    session = open_session(str(tmp_path / "onnx" / "model.onnx"))
    wanted = {each.name for each in session.get_inputs()}
    close = 1e-4 * scale + 1e-6 * abs(mean)
    for text, number in zip(TEXTS, told(model), strict=True):
        ids = np.array([model.tokenizer.encode(text).input_ids])
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        given["passes"] = np.array(model.config.layers)
        said = session.run(["regress"], {name: value for name, value in given.items() if name in wanted})[0]
        assert said[0, 0] == pytest.approx(number, abs=close)
    by_file = run_by_onnx(model, tmp_path / "onnx" / "model.onnx")
    assert told(by_file) == pytest.approx(told(model), abs=close)


def test_a_file_whose_numbers_are_wrong_is_refused_however_small_they_are(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    model, real = counted(tmp_path / "toy", 0.0, 1e-6), exporting.write_network

    def wrong(network, *how):
        with torch.no_grad():
            network.heads["regress"].out.bias.add_(1e-7)
            found = real(network, *how)
            network.heads["regress"].out.bias.sub_(1e-7)
        return found

    monkeypatch.setattr(exporting, "write_network", wrong)
    with pytest.raises(UserError, match=r"differs from PyTorch by 0\.1 "):
        export_onnx(model, tmp_path / "onnx")
