"""Offsets lead back into the text as it was, although normalising changed it."""

import random
import unicodedata
from collections.abc import Callable

import pytest

from litebert.text.tokenizer import Tokenizer
from litebert.text.unigram import UnigramPieces
from litebert.text.words import to_bytes

Contains = Callable[[str, str], bool]


def contains(tokenizer: Tokenizer) -> Contains:
    """Whether the normalised text of a span holds the piece."""
    pieces = tokenizer.pieces
    if isinstance(pieces, UnigramPieces):
        return lambda piece, span: piece.replace("▁", "") in pieces.model.normalize(pieces.normalise(span))
    if tokenizer.kind == "wordpiece":
        normal = pieces.library.normalizer  # type: ignore[attr-defined]
        return lambda piece, span: piece.removeprefix("##") in normal.normalize_str(span).replace(" ", "")

    def has_bytes(piece: str, span: str) -> bool:
        data = to_bytes(piece)
        return data.decode(errors="replace").strip("\ufffd").isspace() or data.strip() in span.encode() or not span

    return has_bytes


def check(tokenizer: Tokenizer, text: str, holds: Contains) -> None:
    found = tokenizer.encode(text)
    covered = [False] * len(text)
    before = (0, 0)
    for index, (start, end), whose in zip(found.input_ids, found.offsets, found.texts, strict=True):
        if whose < 0:
            assert (start, end) == (0, 0)
            continue
        assert 0 <= start <= end <= len(text)
        assert start >= before[0], (text, before, (start, end))
        assert end >= before[1], (text, before, (start, end))
        before = (start, end)
        covered[start:end] = [True] * (end - start)
        if index != tokenizer.roles["unk"]:
            assert holds(tokenizer.piece(index), text[start:end]), (text, tokenizer.piece(index), text[start:end])
    if any(whose >= 0 for whose in found.texts):
        lost = [char for char, seen in zip(text, covered, strict=True) if not seen and not char.isspace()]
        assert lost == [], text


@pytest.mark.parametrize("kind", ["albert", "bert", "gpt2"])
def test_offsets_cover_the_text_and_never_go_backwards(
    kind: str, request: pytest.FixtureRequest, paragraphs: list[str]
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    holds = contains(tokenizer)
    for text in paragraphs if kind == "albert" else paragraphs[::4]:
        check(tokenizer, text, holds)


@pytest.mark.parametrize("kind", ["albert", "bert", "gpt2"])
def test_offsets_survive_nasty_strings(kind: str, request: pytest.FixtureRequest, nasty: list[str]) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    holds = contains(tokenizer)
    generator = random.Random(0)
    alphabet = sorted({char for text in nasty for char in text if unicodedata.category(char) != "Cs"}) + [" "] * 20
    for text in nasty + ["".join(generator.choices(alphabet, k=30)) for _ in range(1500)]:
        check(tokenizer, text, holds)


def test_a_span_is_cut_from_the_original_text(albert: Tokenizer) -> None:
    text = "  The Crème\u00a0BRU\u0302LE\u0301E  cost ½ £9,000 (in 1989, İzmir)."
    found = albert.encode(text)
    spans = {albert.piece(i): text[a:b] for i, (a, b) in zip(found.input_ids, found.offsets, strict=True)}
    assert spans["▁the"] == "The"
    assert spans["▁1989"] == "1989"
    assert spans["▁1"] == "½"
    assert spans["£"] == "£"
    starts = [text[a:] for (a, b), first in zip(found.offsets, found.word_starts, strict=True) if first and b > a]
    assert any(rest.startswith("Crème") for rest in starts)
    assert any(rest.startswith("BRU\u0302LE\u0301E") for rest in starts)
    assert "".join(text[a:b] for a, b in found.offsets).replace("½½½", "½") == "".join(text.split())


def test_the_pieces_of_a_pair_say_whose_text_they_come_from(albert: Tokenizer) -> None:
    first, second = "Who wrote it?", "Émile wrote it."
    found = albert.encode(first, second)
    pieces = list(zip(found.texts, found.offsets, found.token_type_ids, found.special_mask, strict=True))
    assert [whose for whose, *_ in pieces].count(-1) == 3
    assert [special for *_, special in pieces] == [whose < 0 for whose, *_ in pieces]
    assert "".join(second[a:b] for whose, (a, b), *_ in pieces if whose == 1) == second.replace(" ", "")
    assert all(kind == whose for whose, _, kind, _ in pieces if whose >= 0)


def test_a_mask_in_the_text_is_the_mask_and_other_names_are_text(albert: Tokenizer, bert: Tokenizer) -> None:
    for tokenizer in (albert, bert):
        text = "Paris is [MASK] [SEP] nice"
        found = tokenizer.encode(text)
        at = found.input_ids.index(tokenizer.mask_id)
        assert text[slice(*found.offsets[at])] == "[MASK]"
        assert found.input_ids.count(tokenizer.sep_id) == 1
        assert tokenizer.mask_id not in tokenizer.ids([text])[0]
        check(tokenizer, text.replace("[MASK]", "x"), contains(tokenizer))
