"""Loading every kind of file, specials, truncation, and broken files that end in one line."""

import json
from pathlib import Path

import numpy as np
import pytest

from litebert.config import UserError
from litebert.text.tokenizer import Tokenizer
from litebert.text.train import TrainSettings, train_tokenizer

TEXTS = [f"The number {n} of the {w} fox, Ümläut Straße café." for n, w in enumerate(["quick", "brown", "lazy"] * 30)]


@pytest.fixture(scope="module")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level tokenizer as RoBERTa's own files have it: vocab.json and merges.txt."""
    folder = tmp_path_factory.mktemp("roberta")
    trained, _ = train_tokenizer(TEXTS, TrainSettings(kind="bpe", vocab_size=300))
    trained.save(folder / "json")
    model = json.loads((folder / "json" / "tokenizer.json").read_text())["model"]
    vocabulary = model["vocab"] | {"<mask>": 299}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n")
    return folder


def test_every_file_and_folder_name_loads_the_same_tokenizer(data: Path, tmp_path: Path) -> None:
    model = (data / "tokenizers" / "albert-spiece.model").read_bytes()
    for name in ("spiece.model", "mine.model"):
        (tmp_path / name).write_bytes(model)
        loaded = Tokenizer.load(tmp_path / name)
        assert (loaded.kind, len(loaded)) == ("unigram", 30_000)
    assert Tokenizer.load(tmp_path).encode("Hello").input_ids == loaded.encode("Hello").input_ids
    assert (loaded.pad_id, loaded.unk_id, loaded.cls_id, loaded.sep_id, loaded.mask_id) == (0, 1, 2, 3, 4)
    assert loaded.special_ids == {0, 1, 2, 3, 4}
    vocabulary = (data / "tokenizers" / "bert-base-uncased-vocab.txt").read_bytes()
    (tmp_path / "crlf-vocab.txt").write_bytes(vocabulary.replace(b"\n", b"\r\n"))
    windows, unix = (
        Tokenizer.load(tmp_path / "crlf-vocab.txt"),
        Tokenizer.load(data / "tokenizers" / "bert-base-uncased-vocab.txt"),
    )
    assert (windows.kind, len(windows), windows.mask_id) == ("wordpiece", 30_522, 103)
    assert windows.encode("Hello, Wörld").input_ids == unix.encode("Hello, Wörld").input_ids


def test_robertas_two_files_give_its_layout_of_pairs_and_one_token_type(roberta: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(roberta)
    assert (tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id, tokenizer.unk_id) == (0, 1, 2, 3)
    assert tokenizer.mask_id == len(tokenizer) - 1
    assert tokenizer.encode("fox").input_ids == Tokenizer.load(roberta / "json").encode("fox").input_ids
    found = tokenizer.encode("fox", "café")
    first, second = tokenizer.encode("fox").input_ids, tokenizer.encode("café").input_ids
    assert found.input_ids == [*first, 2, *second[1:]]
    assert set(found.token_type_ids) == {0}
    assert set(found.texts) == {-1, 0, 1}
    tokenizer.save(tmp_path)
    peer = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(tmp_path)
    assert peer("fox", "café")["input_ids"] == found.input_ids
    assert peer("the <mask> fox")["input_ids"] == tokenizer.encode("the <mask> fox").input_ids
    assert Tokenizer.load(tmp_path).encode("fox", "café") == found


def test_a_missing_special_is_one_line_when_it_is_asked_for(gpt2: Tokenizer) -> None:
    assert gpt2.kind == "bpe"
    assert len(gpt2.encode("Hello world").input_ids) == 2
    for name in ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id"):
        with pytest.raises(UserError, match=f"no {name.removesuffix('_id')} piece") as caught:
            getattr(gpt2, name)
        assert "\n" not in str(caught.value)


def test_a_pair_too_long_loses_the_end_of_its_longer_text(albert: Tokenizer) -> None:
    long, short = "one two three four five six seven eight", "nine ten"
    whole, cut = albert.encode(long, short), albert.encode(long, short, max_length=9)
    assert len(whole.input_ids) == 13
    assert len(cut.input_ids) == 9
    assert [cut.texts.count(0), cut.texts.count(1)] == [4, 2]
    assert cut.input_ids[:5] == whole.input_ids[:5]
    assert albert.encode(long, max_length=5).input_ids == [*whole.input_ids[:4], albert.sep_id]
    with pytest.raises(UserError, match="max_length = 2 leaves no room"):
        albert.encode(long, short, max_length=2)


def test_case_and_accents_follow_the_settings_beside_the_model(data: Path, tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes((data / "tokenizers" / "albert-spiece.model").read_bytes())
    plain = Tokenizer.load(tmp_path)
    ids = {}
    for setting in ({}, {"do_lower_case": False}, {"keep_accents": True}):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(setting))
        ids[str(setting)] = tuple(Tokenizer.load(tmp_path).encode("Café").input_ids)
    assert ids["{}"] == tuple(plain.encode("cafe").input_ids)
    assert len(set(ids.values())) == 3


def test_decoding_leaves_out_specials(albert: Tokenizer, bert: Tokenizer, gpt2: Tokenizer) -> None:
    for tokenizer in (albert, bert, gpt2):
        assert (
            tokenizer.decode(tokenizer.encode("hello world , (yes)").input_ids).replace(" ", "") == "helloworld,(yes)"
        )
    assert albert.decode(np.asarray(albert.encode("hello world").input_ids)) == "hello world"
    with pytest.raises(UserError, match="no piece 30000"):
        albert.piece(30_000)


def test_no_text_and_no_texts_give_no_ids(albert: Tokenizer, bert: Tokenizer, gpt2: Tokenizer) -> None:
    for tokenizer in (albert, bert, gpt2):
        flat, lengths = tokenizer.ids([])
        assert (len(flat), len(lengths)) == (0, 0)
        flat, lengths = tokenizer.ids(["", " ", "x"])
        assert lengths[0] == 0
        assert lengths.sum() == len(flat)
    assert albert.encode("").input_ids == [albert.cls_id, albert.sep_id]


def broken(folder: Path, data: Path) -> list[Path]:
    files = data / "tokenizers"
    contents = {
        "cut.model": (files / "albert-spiece.model").read_bytes()[:400_001],
        "empty.model": b"",
        "noise.model": bytes(range(256)) * 40,
        "cut-tokenizer.json": (files / "gpt2-tokenizer.json").read_bytes()[:100_000],
        "list-tokenizer.json": b"[]",
        "words-tokenizer.json": b'{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}',
        "noise-vocab.txt": bytes(range(255, 0, -1)),
        "empty-vocab.txt": b"",
        "twice-vocab.txt": b"[UNK]\na\na\n",
        "lonely/vocab.json": b"{}",
        "bad/vocab.json": b"{",
        "bad/merges.txt": b"#version\n",
        "gone/vocab.json": b'{"a": 0}',
        "gone/merges.txt": b"a b c\n",
        "strange.bin": b"x",
    }
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "nothing").mkdir()
    (folder / "config").mkdir()
    (folder / "config" / "tokenizer_config.json").write_text("{")
    (folder / "config" / "vocab.txt").write_text("[UNK]\n")
    skip = {"bad/merges.txt", "gone/merges.txt"}
    return [folder / name for name in contents if name not in skip] + [
        folder / "nothing",
        folder / "config",
        folder / "not-there.model",
    ]


def test_broken_files_end_in_one_line_that_names_the_file(data: Path, tmp_path: Path) -> None:
    for path in broken(tmp_path, data):
        with pytest.raises(UserError) as caught:
            Tokenizer.load(path)
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value), str(caught.value)


def test_a_folder_that_cannot_be_written_is_one_line(albert: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        albert.save(tmp_path / "file")


def test_a_published_folder_keeps_its_ids_through_load_and_save(minilm: Path, tmp_path: Path, nasty: list[str]) -> None:
    peers = pytest.importorskip("transformers")
    tokenizer = Tokenizer.load(minilm)
    tokenizer.save(tmp_path)
    theirs, again = (peers.AutoTokenizer.from_pretrained(folder) for folder in (minilm, tmp_path))
    assert (tokenizer.kind, theirs.mask_token_id) == ("wordpiece", tokenizer.mask_id)
    for text in (text for text in nasty if "[CLS]" not in text):
        wanted = theirs(text, "b c")
        assert again(text, "b c")["input_ids"] == wanted["input_ids"] == tokenizer.encode(text, "b c").input_ids
        assert again(text, "b c")["token_type_ids"] == tokenizer.encode(text, "b c").token_type_ids


def test_files_appear_whole_and_nothing_else_is_left(albert: Tokenizer, tmp_path: Path) -> None:
    albert.save(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "spiece.model",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    albert.save(tmp_path)
    assert Tokenizer.load(tmp_path).pieces.size() == 30_000


def test_saving_into_the_folder_of_another_tokenizer_leaves_nothing_of_it(tmp_path):
    from litebert.text.train import TrainSettings, train_tokenizer

    lines = ["the quick brown fox jumps over the lazy dog"] * 20
    for kind, size in (("unigram", 40), ("bpe", 270), ("wordpiece", 45)):
        trained, _ = train_tokenizer(lines, TrainSettings(kind=kind, vocab_size=size))
        trained.save(tmp_path)
        assert Tokenizer.load(tmp_path).kind == kind
        assert Tokenizer.load(tmp_path).checksum == trained.checksum


def test_half_a_surrogate_pair_is_one_line(tmp_path):
    from litebert.text.train import TrainSettings, train_tokenizer

    trained, _ = train_tokenizer(["the quick brown fox"] * 20, TrainSettings(kind="bpe", vocab_size=270))
    for tokenizer in (trained, Tokenizer.load("litebert-base")):
        with pytest.raises(UserError, match="half a surrogate pair"):
            tokenizer.encode("\ud800x")
        with pytest.raises(UserError, match="half a surrogate pair"):
            tokenizer.ids(["the fox", "\ud800x"])
