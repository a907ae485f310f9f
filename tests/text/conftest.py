"""Real paragraphs, real vocabularies, and the original's procedure written down literally."""

import json
import lzma
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.text.tokenizer import Tokenizer

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session")
def paragraphs(data: Path) -> list[str]:
    """10,000 paragraphs: 2,500 from the start of each file of the corpus."""
    found: list[str] = []
    for number, name in enumerate(("wiki-0", "wiki-1", "wiki-2", "books-0"), 1):
        with lzma.open(data / "corpus" / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
            for line in lines:
                found += [part for part in json.loads(line)["text"].split("\n") if part.strip()]
                if len(found) >= 2500 * number:
                    del found[2500 * number :]
                    break
    return found


@pytest.fixture(scope="session")
def albert(data: Path) -> Tokenizer:
    return Tokenizer.load(data / "tokenizers" / "albert-spiece.model")


@pytest.fixture(scope="session")
def bert(data: Path) -> Tokenizer:
    return Tokenizer.load(data / "tokenizers" / "bert-base-uncased-vocab.txt")


@pytest.fixture(scope="session")
def gpt2(data: Path) -> Tokenizer:
    return Tokenizer.load(data / "tokenizers" / "gpt2-tokenizer.json")


@pytest.fixture(scope="session")
def original(data: Path) -> Callable[[str], list[int]]:
    """google-research/albert, tokenization.py: preprocess_text, then encode_pieces, as Python 3 runs it."""
    from sentencepiece import SentencePieceProcessor

    model = SentencePieceProcessor(model_file=str(data / "tokenizers" / "albert-spiece.model"))

    def encode(text: str) -> list[int]:
        text = " ".join(text.strip().split())
        text = unicodedata.normalize("NFKD", text)
        text = "".join(c for c in text if not unicodedata.combining(c))
        text = text.lower()
        pieces = []
        for piece in model.encode(text, out_type=str):
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
                pieces += model.encode(piece[:-1].replace("▁", ""), out_type=str)
                pieces.append(piece[-1])
            else:
                pieces.append(piece)
        return [model.piece_to_id(piece) for piece in pieces]

    return encode


NASTY = [
    "ﬁnd ﬂour ½ cup ℡ Ⅷ ㎏ ㍿ ﷺ",
    "A\u030angström Ångström naïve e\u0301\u0302\u0323x",
    "İstanbul ß ẞ ŉ ΟΔΟΣ ΣΑΣ ΑΣ. Σ",
    "😀 👨‍👩‍👧 🇩🇪 e\u20e3",
    "a\u00a0b\u2003c\u3000d\u200be\u200df\ufeffg",
    "日本語 中文です。全角ＡＢＣ",
    "السَّلامُ عليكم",
    "한국어 각 \u1112\u1161\u11ab",
    "नमस्ते दुनिया, हिन्दी",
    "สวัสดีครับ",
    "so\u00adft hy\u00adphen\u00ad",
    "a\x00b\x01\x7f c\x85d\x1ce",
    "\x01a",
    "\u0301a x \u0301 y \u0301",
    "9,000 and 9, 1989, $9, 12,100 1,050 1,320,000 1,000,000,",
    '(a) "b" -c. –£€ `` \'\' "',
    "▁a ▁ <pad> [CLS] <unk> </s> <|endoftext|>",
    "tab\there\nline\r\n  double  ",
    "",
    "   \t\n",
    "\x01",
    "\u200b",
    "x" * 300,
]


@pytest.fixture(scope="session")
def nasty() -> list[str]:
    """Strings made to break things."""
    return list(NASTY)
