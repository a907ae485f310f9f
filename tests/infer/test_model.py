"""`litebert.load`: folders, hub names, tokenizers that travel along."""

import sys

import pytest
import torch

import litebert
from litebert.config import HeadConfig, UserError
from litebert.export.hf import export_hf
from litebert.model.weights import build
from litebert.text.tokenizer import Tokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "ship", "sail", "##ed", ".", "a"]


@pytest.fixture
def model(small, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    network = build(small("bert"), [HeadConfig(kind="classify", labels=("bad", "good"))], seed=1).eval()
    return litebert.Model(network=network, tokenizer=Tokenizer.load(tmp_path / "vocab.txt"))


def test_a_saved_model_loads_with_its_tokenizer_and_labels(model, tmp_path):
    model.save(tmp_path / "saved")
    back = litebert.load(tmp_path / "saved")
    assert back.labels == ("bad", "good")
    ids = torch.tensor([back.tokenizer.encode("The ship sailed.").input_ids])
    assert ids.tolist() == [[2, 5, 6, 7, 8, 9, 3]]
    assert torch.equal(back.network(ids)["classify"], model.network(ids)["classify"])
    assert torch.equal(back.encoder(ids), model.encoder(ids))


def test_an_exported_folder_is_read_by_transformers_tokenizer_included(model, tmp_path):
    transformers = pytest.importorskip("transformers")
    export_hf(model, tmp_path / "hf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    text = "The ship sailed."
    assert tokenizer(text)["input_ids"] == model.tokenizer.encode(text).input_ids


def test_a_model_keeps_the_type_it_came_in(model, tmp_path):
    model.stored = torch.bfloat16
    model.save(tmp_path / "a")
    back = litebert.load(tmp_path / "a")
    assert back.stored == torch.bfloat16
    assert next(back.network.parameters()).dtype == torch.float32
    back.save(tmp_path / "b")
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()
    export_hf(back, tmp_path / "hf")
    assert litebert.load(tmp_path / "hf").stored == torch.bfloat16


def test_a_hub_name_loads_from_the_hubs_own_cache(model, tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub")
    cache = tmp_path / "hub" / "models--someone--small-bert"
    export_hf(model, cache / "snapshots" / ("0" * 40))
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("0" * 40)
    code = "import litebert; print(litebert.load('someone/small-bert').labels)"
    import os
    import subprocess

    environment = os.environ | {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "('bad', 'good')", done.stderr


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("albert-base", "albert-base is a preset, a shape without weights"),
        ("some/where/else", "no folder some/where/else$"),
        ("../nowhere", r"no folder \.\./nowhere$"),
        ("someone/never-heard-of", "no folder someone/never-heard-of, and the hub did not give it: "),
    ],
)
def test_a_name_that_leads_nowhere_is_one_line(name, sentence):
    with pytest.raises(UserError, match=sentence) as problem:
        litebert.load(name)
    assert "\n" not in str(problem.value)


def test_a_file_is_not_a_model(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(UserError, match="is a file; a model is the folder around it"):
        litebert.load(tmp_path / "x")


def test_without_the_hub_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"pip install 'litebert\[hub\]'"):
        litebert.load("someone/small-bert")
