"""Pieces -> which of them start a word, for whole-word masking in any language with any kind of tokenizer.

A piece starts a word where it carries its kind's mark (▁, no ##, Ġ), where it is punctuation or a symbol, and in
scripts that are written without spaces. The original (create_pretraining_data.py, `_is_start_piece_sp`) takes every
character outside a-z for a start, so that outside English each piece is a word of its own.
"""

import unicodedata
from functools import cache
from itertools import takewhile
from typing import Literal

Kind = Literal["unigram", "wordpiece", "bpe"]

UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # Han radicals
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xA9E0, 0xA9FF),  # Myanmar
    (0xAA60, 0xAA7F),
    (0xF900, 0xFAFF),  # Han
    (0xFF66, 0xFF9F),  # Katakana of half width
    (0x1AFF0, 0x1B16F),
    (0x20000, 0x3FFFF),  # Han
)


def starts_word(piece: str, kind: Kind) -> bool:
    """Whether the piece starts a word wherever it stands.

    >>> [starts_word(piece, "unigram") for piece in ("▁über", "ü", "(", "日本", "9", "\\u093e")]
    [True, False, True, True, False, False]
    >>> [starts_word(piece, "wordpiece") for piece in ("über", "##ü", "##日")]
    [True, False, True]
    >>> [starts_word(piece, "bpe") for piece in ("Ġdie", "Ã¼", "æĹ¥", "Ĺ¥")]
    [True, False, True, False]
    """
    if kind == "bpe":
        return _bytes_start_word(to_bytes(piece))
    if kind == "unigram":
        return piece.startswith("▁") or _char_starts_word(piece[:1])
    if piece.startswith("##") and len(piece) > 2:
        return _char_starts_word(piece[2])
    return not unicodedata.category(piece[0]).startswith("M") if piece else False


def _char_starts_word(char: str) -> bool:
    """Whether a word starts at this character in the middle of running text."""
    if not char:
        return False
    category = unicodedata.category(char)
    if category[0] in "PSZ" or char.isspace():
        return True
    if category[0] == "M" or category == "Nd":
        return False
    return any(first <= ord(char) <= last for first, last in UNSPACED)


def _bytes_start_word(data: bytes) -> bool:
    if not data or 0x80 <= data[0] < 0xC0:  # the middle of a character
        return False
    size = 1 if data[0] < 0x80 else 2 if data[0] < 0xE0 else 3 if data[0] < 0xF0 else 4
    head = bytes([data[0], *takewhile(lambda byte: 0x80 <= byte < 0xC0, data[1:size])])
    if len(head) == size:
        return _char_starts_word(head.decode("utf-8", "replace"))
    return _prefix_starts_word(head, size)


@cache
def _prefix_starts_word(head: bytes, size: int) -> bool:
    """The first bytes of a character stand for all characters they may become: the greater part of them decides."""
    missing = 6 * (size - len(head))
    first = head[0] & (0x7F >> size)
    for byte in head[1:]:
        first = first << 6 | byte & 0x3F
    codes = range(first << missing, min((first + 1) << missing, 0x110000))
    known = [chr(code) for code in codes if unicodedata.category(chr(code))[0] != "C"]
    return 2 * sum(map(_char_starts_word, known)) > len(known)


@cache
def _byte_of() -> dict[str, int]:
    """GPT-2's table (encoder.py, bytes_to_unicode): each byte as a printable character."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


def to_bytes(piece: str) -> bytes:
    """The bytes that a byte-level piece stands for.

    >>> to_bytes("ĠcafÃ©").decode()
    ' café'
    """
    table = _byte_of()
    return b"".join(bytes([table[char]]) if char in table else char.encode() for char in piece)
