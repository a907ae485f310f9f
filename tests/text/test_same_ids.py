"""The ids are the originals', on 10,000 real paragraphs and on strings made to break things."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from litebert.cli import app
from litebert.text.tokenizer import Tokenizer
from litebert.text.unigram import digit_comma

transformers = pytest.importorskip("transformers")


def bulk(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    flat, lengths = tokenizer.ids(texts)
    assert flat.dtype == np.int32
    assert lengths.dtype == np.int64
    assert len(lengths) == len(texts)
    assert lengths.sum() == len(flat)
    return [row.tolist() for row in np.split(flat, np.cumsum(lengths)[:-1])]


def inner(tokenizer: Tokenizer, text: str) -> list[int]:
    found = tokenizer.encode(text)
    return [index for index, special in zip(found.input_ids, found.texts, strict=True) if special >= 0]


def test_albert_ids_are_those_of_the_original_procedure(
    albert: Tokenizer, original: Callable[[str], list[int]], paragraphs: list[str], nasty: list[str]
) -> None:
    texts = paragraphs + nasty
    wanted = [original(text) for text in texts]
    assert len(texts) >= 10_000
    assert bulk(albert, texts) == wanted
    few = [*range(0, len(paragraphs), 10), *range(len(paragraphs), len(texts))]
    assert [inner(albert, texts[at]) for at in few] == [wanted[at] for at in few]


def test_the_digit_comma_rule_splits_a_year_from_its_comma(albert: Tokenizer) -> None:
    assert [albert.piece(i) for i in inner(albert, "May 9, 1989, $5")] == ["▁may", "▁9", ",", "▁1989", ",", "▁$5"]
    names = [albert.piece(i) for i in range(len(albert))]
    assert len(digit_comma(names)) == 141
    assert [row.tolist() for row in albert.ids(["1989, x 1989,"])[:1]] == [inner(albert, "1989, x 1989,")]


def test_wordpiece_ids_are_those_of_transformers(
    bert: Tokenizer, data: Path, paragraphs: list[str], nasty: list[str]
) -> None:
    peer = transformers.BertTokenizer(str(data / "tokenizers" / "bert-base-uncased-vocab.txt"))
    texts = paragraphs + [text for text in nasty if "[CLS]" not in text]
    wanted = peer(texts)["input_ids"]
    assert [[bert.cls_id, *row, bert.sep_id] for row in bulk(bert, texts)] == wanted
    assert [bert.encode(text).input_ids for text in texts[::10]] == wanted[::10]


def test_byte_level_ids_are_those_of_transformers(
    gpt2: Tokenizer, data: Path, paragraphs: list[str], nasty: list[str]
) -> None:
    peer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(data / "tokenizers" / "gpt2-tokenizer.json"))
    texts = paragraphs + [text for text in nasty if "<|endoftext|>" not in text]
    wanted = peer(texts)["input_ids"]
    assert bulk(gpt2, texts) == wanted
    assert [gpt2.encode(text).input_ids for text in texts[::10]] == wanted[::10]


def test_a_saved_albert_gives_the_same_ids_in_transformers(
    albert: Tokenizer, paragraphs: list[str], nasty: list[str], tmp_path: Path
) -> None:
    """On these. Rarely, two spellings score the same to float32 and sentencepiece wavers: see docs/LOG.md."""
    albert.save(tmp_path)
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = paragraphs + [text for text in nasty if "[CLS]" not in text]
    found = peer(texts, add_special_tokens=False)["input_ids"]
    differing = [text for text, row, mine in zip(texts, found, bulk(albert, texts), strict=True) if row != mine]
    assert differing == []


def test_random_numbers_with_commas_are_alike_in_transformers(albert: Tokenizer, tmp_path: Path) -> None:
    """A piece that reaches across a comma competes there with the digit-comma rule."""
    albert.save(tmp_path)
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    random = np.random.default_rng(0)
    numbers = [int(10 ** random.uniform(0, 7)) for _ in range(20_000)]
    texts = [f"{number:,}" + random.choice(["", ",", ".", " x", "%"]) for number in numbers]
    found = peer(texts, add_special_tokens=False)["input_ids"]
    same = sum(row == mine for row, mine in zip(found, bulk(albert, texts), strict=True))
    assert same >= 0.999 * len(texts)


@pytest.mark.parametrize("kind", ["albert", "bert", "gpt2"])
def test_a_saved_folder_keeps_ids_specials_pairs_and_token_types(
    kind: str, request: pytest.FixtureRequest, paragraphs: list[str], tmp_path: Path
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (again.kind, len(again), again.roles) == (tokenizer.kind, len(tokenizer), tokenizer.roles)
    assert (again.special_ids, len(peer)) == (tokenizer.special_ids, len(tokenizer))
    for first, second in zip(paragraphs[:40], paragraphs[40:80], strict=True):
        for most in (None, 64, 17):
            mine = tokenizer.encode(first, second, max_length=most)
            assert again.encode(first, second, max_length=most) == mine
            theirs = peer(first, second, truncation=most is not None, max_length=most, return_token_type_ids=True)
            if kind != "gpt2":  # it has no specials and so no layout of pairs
                assert theirs["input_ids"] == mine.input_ids
                assert theirs["token_type_ids"] == mine.token_type_ids
        assert peer(first)["input_ids"] == tokenizer.encode(first).input_ids
    if kind != "gpt2":
        name = tokenizer.piece(tokenizer.mask_id)
        for text in (f"Paris is the {name} of France.", f"{name}", f"a{name} b"):
            assert peer(text)["input_ids"] == tokenizer.encode(text).input_ids


def test_the_bench_measures_ours_beside_the_peers_and_says_whose_ids_agree(data: Path) -> None:
    model, corpus = data / "tokenizers" / "albert-spiece.model", data / "corpus" / "wiki-0.jsonl.xz"
    command = ["bench", "tokenize", str(model), str(corpus), "--texts", "100", "--repeats", "1", "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    other = {row["way"]: row["texts_with_other_ids"] for row in found["rows"]}
    assert found["texts"] == 100
    assert other["litebert, ids"] == other["litebert, offsets too"] == other["transformers, our folder"] == 0
    assert other["sentencepiece"] > 0, "it has no digit-comma rule"
    assert all(row["mb_per_second"] > 0 for row in found["rows"])
