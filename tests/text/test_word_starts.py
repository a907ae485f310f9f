"""Whole words in any language, with all three kinds of tokenizer."""

import pytest

from litebert.text.tokenizer import Tokenizer
from litebert.text.train import TrainSettings, train_tokenizer
from litebert.text.words import Kind

SENTENCES = {
    "English": "The quick, brown fox jumped over 1989 lazy dogs",
    "German": "Die Straßenbahn fährt über die große Brücke nach Köln",
    "Russian": "Быстрая коричневая лиса прыгает через ленивую собаку",
    "Hindi": "हिन्दी भारत की राजभाषा है और बहुत लोग इसे बोलते हैं",
}
CHINESE = "北京是中国的首都"


@pytest.fixture(scope="module", params=["unigram", "wordpiece", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """A tiny one, so that words fall into many pieces."""
    kind: Kind = request.param
    texts = [*SENTENCES.values(), CHINESE] * 20
    size = {"unigram": 115, "wordpiece": 290, "bpe": 330}[kind]
    return train_tokenizer(texts, TrainSettings(kind=kind, vocab_size=size, cased=True, keep_accents=True))[0]


def words(tokenizer: Tokenizer, text: str) -> list[str]:
    """The text cut where pieces say that a word starts."""
    found = tokenizer.encode(text)
    assert tokenizer.unk_id not in found.input_ids
    groups: list[list[tuple[int, int]]] = []
    for span, first, special in zip(found.offsets, found.word_starts, found.special_mask, strict=True):
        if not special:
            groups += [[span]] if first else []
            groups[-1].append(span)
    spans = [[(start, end) for start, end in group if end > start] for group in groups]
    return [text[group[0][0] : group[-1][1]] for group in spans if group]


@pytest.mark.parametrize("language", SENTENCES)
def test_words_are_whole_in_languages_with_spaces(tokenizer: Tokenizer, language: str) -> None:
    text = SENTENCES[language]
    assert len(tokenizer.ids([text])[0]) > len(text.split()), "the test wants words of several pieces"
    assert words(tokenizer, text) == text.replace(",", " ,").split()


def test_chinese_characters_are_words_of_their_own_or_of_their_piece(tokenizer: Tokenizer) -> None:
    found = words(tokenizer, CHINESE)
    assert "".join(found) == CHINESE
    assert len(found) > 3


def test_the_released_vocabularies_know_their_word_starts(albert: Tokenizer, bert: Tokenizer, gpt2: Tokenizer) -> None:
    for tokenizer, starts, goes_on in (
        (albert, ["▁the", "(", ",", "▁"], ["s", "ing", "9,000"]),
        (bert, ["the", ",", "人", "##，"], ["##s", "##ing", "##é", "##1"]),
        (gpt2, ["Ġthe", ",", "æĹ¥", "âĢĻ"], ["s", "ing", "Ã©", "Ļ", "19"]),
    ):
        table = tokenizer.word_start_table
        assert table.shape == (len(tokenizer),)
        for pieces, wanted in ((starts, True), (goes_on, False)):
            for piece in pieces:
                index = tokenizer.pieces.find(piece)
                if index is not None:
                    assert bool(table[index]) is wanted, (tokenizer.kind, piece)
    assert all(albert.word_start_table[index] for index in albert.special_ids)


def test_encode_reads_the_table(albert: Tokenizer) -> None:
    found = albert.encode("Unbelievably (good)")
    assert found.word_starts == [bool(albert.word_start_table[index]) for index in found.input_ids]
