"""Training: ids as the families have them, choices that can be seen, bounded memory, one-line errors."""

import json
import lzma
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from litebert.cli import app
from litebert.config import UserError
from litebert.text.tokenizer import Tokenizer
from litebert.text.train import LONGEST, TrainSettings, draw_sample, split_long, train_tokenizer
from litebert.text.unigram import digit_comma
from litebert.text.words import Kind

NAMES = ["Ärger", "Über", "Ölpreis", "Crème", "Zürich", "garçon", "Łódź", "Fußball"]
TEXTS = [
    f'In May {1900 + n}, {NAMES[n % 8]} sold {n},500 units ({n % 7}%) to "{NAMES[n % 5]}".\nThe price-tag was £{n}.'
    for n in range(300)
]
SIZES: dict[Kind, int] = {"unigram": 160, "wordpiece": 220, "bpe": 400}


def trained(kind: Kind, **more: object) -> Tokenizer:
    return train_tokenizer(TEXTS, TrainSettings(kind=kind, **({"vocab_size": SIZES[kind]} | more)))[0]  # type: ignore[arg-type]


def test_a_unigram_model_has_alberts_specials_and_symbols_at_its_ids() -> None:
    tokenizer = trained("unigram")
    assert [tokenizer.piece(i) for i in range(13)] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", *'()"-.–£€']
    assert len(tokenizer) == 160
    assert tokenizer.special_ids == {0, 1, 2, 3, 4}


def test_no_trained_piece_lies_idle_under_the_digit_comma_rule() -> None:
    tokenizer = trained("unigram")
    names = [tokenizer.piece(i) for i in range(len(tokenizer))]
    assert digit_comma(names) == []
    assert "," in names
    assert not any(",," in name for name in names)


def test_wordpiece_and_byte_level_specials_stand_where_their_families_have_them() -> None:
    wordpiece, bpe = trained("wordpiece"), trained("bpe")
    assert [wordpiece.piece(i) for i in range(5)] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert [bpe.piece(i) for i in range(4)] == ["<s>", "<pad>", "</s>", "<unk>"]
    assert bpe.mask_id == len(bpe) - 1 == 399


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
def test_case_and_accents_are_the_users_choice_and_are_kept_in_the_folder(kind: Kind, tmp_path: Path) -> None:
    peers = pytest.importorskip("transformers")
    for cased in (False, True):
        for accents in (False, True):
            tokenizer = trained(kind, cased=cased, keep_accents=accents)
            tokenizer.save(tmp_path / f"{cased}{accents}")
            again = Tokenizer.load(tmp_path / f"{cased}{accents}")
            peer = peers.AutoTokenizer.from_pretrained(tmp_path / f"{cased}{accents}")
            for text in (*TEXTS[:20], "Müßig, CRÈME 1, 2 3,000 Ａ ½ Σ"):
                assert again.encode(text) == tokenizer.encode(text)
                assert peer(text)["input_ids"] == tokenizer.encode(text).input_ids
            same_case = tokenizer.encode("Zürich").input_ids == tokenizer.encode("zürich").input_ids
            same_accents = tokenizer.encode("Zürich").input_ids == tokenizer.encode("Zurich").input_ids
            assert (same_case, same_accents) == (not cased, not accents)


def test_byte_level_keeps_case_and_accents_unless_told_otherwise() -> None:
    assert TrainSettings(kind="bpe").normalise == TrainSettings(kind="unigram", cased=True, keep_accents=True).normalise


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
def test_the_same_texts_give_the_same_bytes_in_another_process(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("\n\n".join(TEXTS), encoding="utf-8")
    folders = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        command = [sys.executable, "-m", "litebert", "tokenizer", "train", str(tmp_path / "corpus.txt")]
        command += ["--to", str(folder), "--kind", kind, "--vocab-size", str(SIZES[kind])]
        subprocess.run(command, check=True, capture_output=True)
        folders.append({file.name: file.read_bytes() for file in folder.iterdir()})
    assert folders[0] == folders[1]
    assert "tokenizer.json" in folders[0]


def test_a_sample_is_bounded_seeded_and_all_of_it_when_it_fits() -> None:
    sentences = [f"sentence {n}" for n in range(1000)]
    assert draw_sample(sentences, TrainSettings()) == sentences
    few = draw_sample(sentences, TrainSettings(max_sentences=100, seed=1))
    assert len(few) == 100
    assert few == [text for text in sentences if text in set(few)], "the order of the text is kept"
    assert few == draw_sample(sentences, TrainSettings(max_sentences=100, seed=1))
    assert few != draw_sample(sentences, TrainSettings(max_sentences=100, seed=2))
    long = ["x" * 99 + str(n % 10) for n in range(1000)]
    by_size = draw_sample(long, TrainSettings(max_bytes=5000))
    assert 49 <= len(by_size) <= 50
    halves = []
    for seed in range(40):
        drawn = draw_sample(sentences, TrainSettings(max_sentences=100, seed=seed))
        halves.append(sum(int(text.split()[1]) < 500 for text in drawn))
    assert abs(sum(halves) / 40 - 50) < 4, "uniform: 0.8 is the standard error"


def test_sampling_never_holds_more_than_its_bound() -> None:
    alive = 0

    class Counted(str):
        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    most = 0

    def stream() -> Iterator[str]:
        nonlocal alive, most
        for number in range(5000):
            alive += 1
            most = max(most, alive)
            yield Counted(f"line {number}")

    draw_sample(stream(), TrainSettings(max_sentences=200))
    assert most <= 210


def test_long_lines_are_split_and_nothing_is_lost() -> None:
    text = " ".join(f"Sentence number {n} ends here." for n in range(1000))
    parts = list(split_long(text))
    assert " ".join(parts) == text
    assert all(len(part.encode()) <= LONGEST and part.endswith(".") for part in parts)
    unspaced = "漢" * 5000
    assert "".join(split_long(unspaced)) == unspaced
    assert all(len(part.encode()) <= LONGEST for part in split_long(unspaced))
    _, counts = train_tokenizer([text, "", *TEXTS], TrainSettings(vocab_size=160))
    assert (counts.texts, counts.empty_texts, counts.split_lines) == (302, 1, 1)
    assert counts.used_sentences == counts.sentences == len(parts) + 600


def test_a_character_only_in_a_long_line_is_learned() -> None:
    """sentencepiece itself leaves lines of more than 4192 bytes out without a word."""
    text = " ".join(["ordinary words"] * 400 + ["ж"] * 40)
    tokenizer, _ = train_tokenizer([text], TrainSettings(vocab_size=26))
    assert tokenizer.unk_id not in tokenizer.encode("ж").input_ids


@pytest.mark.parametrize(
    ("kind", "size", "words"),
    [
        ("unigram", 30_000, r"vocab_size = 30000 is more than the \d+ pieces this text gives; use that"),
        ("wordpiece", 30_000, r"vocab_size = 30000 is more than the \d+ pieces this text gives; use that"),
        ("bpe", 30_000, r"vocab_size = 30000 is more than the \d+ pieces this text gives; use that"),
        ("unigram", 20, "vocab_size = 20 is too small"),
        ("bpe", 100, "vocab_size = 100 is too small"),
        ("unigram", 0, "vocab_size = 0 must be at least 1"),
    ],
)
def test_a_vocabulary_that_the_text_cannot_give_is_one_line(kind: Kind, size: int, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        trained(kind, vocab_size=size)
    assert "\n" not in str(caught.value)


def test_no_text_is_one_line() -> None:
    with pytest.raises(UserError, match="no text to train on: 2 texts"):
        train_tokenizer(["", " \n "], TrainSettings(vocab_size=100))


def test_the_command_reads_text_and_jsonl_and_counts_documents(tmp_path: Path) -> None:
    rows = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS[:100])
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl.xz").write_bytes(lzma.compress(rows.encode()))
    (tmp_path / "in" / "b.txt").write_text("\n\n".join(TEXTS[100:]), encoding="utf-8")
    command = [
        "tokenizer",
        "train",
        str(tmp_path / "in"),
        "--to",
        str(tmp_path / "out"),
        "--vocab-size",
        "160",
        "--json",
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["texts"], found["sentences"], found["vocab_size"]) == (300, 600, 160)
    assert Tokenizer.load(tmp_path / "out").encode("May").input_ids == trained("unigram").encode("May").input_ids
    command[4] = str(tmp_path / "in" / "tok")
    for _ in range(2):  # what it wrote into its own input is no text
        again = CliRunner().invoke(app, command)
        assert again.exit_code == 0, again.output
        assert json.loads(again.stdout)["sentences"] == 600


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"text"\n', "a.jsonl, row 2: not JSON"),
        ("a.jsonl", b'{"title": "x"}\n', "a.jsonl, row 1: no column 'text'; there are: title"),
        ("a.jsonl.xz", b"not xz", "a.jsonl.xz, row 1: the file breaks off here"),
        ("a.txt", b"\xff\xfe\xff", "a.txt, row 1: byte 0xff at 0 is not UTF-8"),
        ("a.pdf", b"", "a.pdf is of no kind that can be read"),
    ],
)
def test_unreadable_input_is_one_line_with_its_place(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    command = ["tokenizer", "train", str(tmp_path / name), "--to", str(tmp_path / "out")]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, UserError)
    assert words in str(result.exception)
    assert "\n" not in str(result.exception)


def test_training_is_silent_on_the_streams_of_its_caller(capfd: pytest.CaptureFixture[str]) -> None:
    trained("unigram")
    assert capfd.readouterr() == ("", "")
