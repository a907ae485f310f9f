"""`litebert.load`: folders, hub names, tokenizers that travel along; what a tagger says of words."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import litebert
from litebert.config import HeadConfig, UserError
from litebert.export.hf import export_hf
from litebert.infer.ask import Entity
from litebert.infer.predict import Heard, asked, say
from litebert.model.weights import build
from litebert.tasks.example import Example, Task
from litebert.tasks.taught import Taught
from litebert.tasks.words import words_of
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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Herr Müller wohnt in Köln.", "Herr|Müller|wohnt|in|Köln|."),
        ("“Wow!!” (he said)…", "“|Wow|!!|”|(|he|said|)|…"),
        ("J. Smith's U.N. speech, 3.5 e-mails", "J.|Smith|'s|U.N.|speech|,|3.5|e-mails"),
        ("words that stand apart 's .", "words|that|stand|apart|'s|."),
        ("cafe\u0301\n $5 ...", "cafe\u0301|$5|..."),
        ("東京。", "東京|。"),
    ],
)
def test_punctuation_around_words_is_split_off(text, words):
    assert [text[low:high] for low, high in words_of(text)] == words.split("|")
    assert words_of(" \t") == []


class TestTags:
    LABELS = ("O", "B-PER", "I-PER", "B-LOC")

    @pytest.fixture
    def tagger(self, model, small):
        network = build(small("bert"), [HeadConfig(kind="tag", labels=self.LABELS)], seed=1)
        return replace(model, network=network, taught=Taught(Task(kind="tag", labels=self.LABELS)))

    def marked(self, tagger, monkeypatch, sentence, tags, labels=LABELS):
        """What is told where the network says these tags, of each word a little less sure than of the one before."""
        shares = np.array([[(0.9 - at / 100) * (name == tag) for name in labels] for at, tag in enumerate(tags)])
        monkeypatch.setattr("litebert.infer.predict.say", lambda model, examples: [Heard(shares, 0, 1)])
        task = replace(tagger.taught.task, labels=labels)
        return replace(tagger, taught=replace(tagger.taught, task=task)).tag([sentence])[0]

    def test_every_tag_comes_with_its_word_and_its_place(self, tagger):
        text = "The ship,  a sail."
        (told,) = tagger.tag([text])
        assert [word.text for word in told.words] == ["The", "ship", ",", "a", "sail", "."]
        assert [text[word.start : word.end] for word in told.words] == [word.text for word in told.words]
        assert tuple(word.tag for word in told.words) == told.value
        example = Example(key="", texts=tuple(word.text for word in told.words))
        said = say(asked(tagger), [example])[0].said
        assert [word.probability for word in told.words] == pytest.approx(said.max(-1).tolist())
        assert told.probability == min(word.probability for word in told.words)

    def test_a_list_of_words_stays_as_it_is(self, tagger):
        words = ["The", "ship,", "sailed to", "sea."]
        (told,) = tagger.tag([words])
        assert [word.text for word in told.words] == words
        assert [" ".join(words)[word.start : word.end] for word in told.words] == words

    def test_a_text_without_words_has_no_tags(self, tagger):
        empty, full = tagger.tag(["", "a ship"])
        assert (empty.value, empty.words, empty.entities) == ((), (), ())
        assert len(full.words) == 2

    def test_words_that_belong_together_are_one_entity(self, tagger, monkeypatch):
        text = "Ann Lee (Bob) saw Köln."
        tags = ("B-PER", "I-PER", "O", "B-PER", "O", "O", "B-LOC", "O")
        assert self.marked(tagger, monkeypatch, text, tags).entities == (
            Entity("PER", "Ann Lee", 0, 7, pytest.approx(0.89)),
            Entity("PER", "Bob", 9, 12, pytest.approx(0.87)),
            Entity("LOC", "Köln", 18, 22, pytest.approx(0.84)),
        )

    def test_labels_without_a_beginning_are_joined_too(self, tagger, monkeypatch):
        tags = ("PER", "PER", "O", "LOC", "PER")
        found = self.marked(tagger, monkeypatch, ["Ann", "Lee", "saw", "Köln", "Bob"], tags, ("O", "PER", "LOC"))
        assert [(each.label, each.text) for each in found.entities] == [
            ("PER", "Ann Lee"),
            ("LOC", "Köln"),
            ("PER", "Bob"),
        ]
