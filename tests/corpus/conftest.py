"""Small tokenizers of the three kinds in each language, and corpora built with them."""

import json
from functools import cache

import pytest

from litebert.corpus.build import BuildOptions, build
from litebert.corpus.engines import Local
from litebert.text.tokenizer import Tokenizer
from litebert.text.train import TrainSettings, train_tokenizer
from tests.corpus.samples import LANGUAGES, documents


@pytest.fixture(scope="session")
def tokenizer():
    """tokenizer('unigram', 'en')"""

    @cache
    def make(kind: str = "unigram", language: str = "en") -> Tokenizer:
        size = {"unigram": 100, "wordpiece": 200, "bpe": 350}[kind]
        settings = TrainSettings(kind=kind, vocab_size=size, keep_accents=True if kind != "bpe" else None)
        return train_tokenizer(LANGUAGES[language].split("\n"), settings)[0]

    return make


@pytest.fixture(scope="session")
def corpus(tmp_path_factory, tokenizer):
    """corpus('unigram', 'en', 300): the folder of a built corpus."""

    @cache
    def make(kind: str = "unigram", language: str = "en", count: int = 300, held_out: float = 0.0):
        folder = tmp_path_factory.mktemp("corpus")
        text = folder / "text.jsonl"
        text.write_text("".join(json.dumps({"text": each}) + "\n" for each in documents(language, count)))
        options = BuildOptions(language=language, held_out=held_out)
        build([text], tokenizer(kind, language), folder / "shards", options, Local(1))
        return folder / "shards"

    return make
