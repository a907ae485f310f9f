"""Text -> the text ALBERT's pieces are looked for in, and for each of its characters where it came from.

Google's procedure (tokenization.py, preprocess_text): white space collapsed, NFKD, combining marks dropped, lower case.
Case and accents are the user's choice: German, Polish or Vietnamese text needs them.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache, lru_cache

Spans = list[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Normaliser:
    """What is done to a text before pieces are looked for."""

    lower: bool = True
    keep_accents: bool = False  # True: no NFKD either, as `transformers` reads its setting of this name

    def __call__(self, text: str, collapse: bool = True) -> str:
        """`collapse=False` leaves runs of plain spaces to a library that collapses them itself; the rest is collapsed.

        >>> Normaliser()("  Crème\\tBRÛLÉE ﬁn ")
        'creme brulee fin'
        """
        if collapse or not text.isprintable():  # no printable character but the plain space is white space
            text = " ".join(text.split())
        if not text.isascii() and not self.keep_accents:
            text = _NOT_ASCII.sub(_decompose_run, text)  # eight times as fast as looking at all of it
        return text.lower() if self.lower else text

    def align(self, text: str) -> tuple[str, list[int]]:
        """The normalised text, and for each character of it the index of the original's that gave it.

        >>> Normaliser().align("½ Å")
        ('1⁄2 a', [0, 0, 0, 1, 2])
        """
        parts: list[str] = []
        origin: list[int] = []
        for word in re.finditer(r"\S+", text):
            if origin:
                parts.append(" ")
                origin.append(word.start() - 1)
            if word[0].isascii():
                parts.append(word[0])
                origin.extend(range(*word.span()))
                continue
            for index, char in enumerate(word[0], word.start()):
                made = char if self.keep_accents else _decompose(char)
                parts.append(made)
                # lower case may be longer than upper (İ), and only the whole word knows its final sigma
                origin.extend([index] * (len(made.lower()) if self.lower else len(made)))
        normal = "".join(parts)
        return (normal.lower() if self.lower else normal), origin


_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


@lru_cache(maxsize=65536)
def _decompose(text: str) -> str:
    return combining().sub("", unicodedata.normalize("NFKD", text))


def _decompose_run(match: re.Match[str]) -> str:
    return _decompose(match[0])


@cache
def combining() -> re.Pattern[str]:
    """All characters with a canonical combining class, which is what the original drops (not: all of category M)."""
    return re.compile(f"[{''.join(combining_ranges())}]+")


@cache
def combining_ranges() -> tuple[str, ...]:
    """The same as ranges of a character class, for regular expressions of any dialect."""
    marks = [code for code in range(0x300, 0x1F000) if unicodedata.combining(chr(code))]
    starts = [code for code in marks if not unicodedata.combining(chr(code - 1))]
    ends = [code for code in marks if not unicodedata.combining(chr(code + 1))]
    return tuple(f"{chr(a)}-{chr(b)}" for a, b in zip(starts, ends, strict=True))


def trim(text: str, spans: Spans) -> Spans:
    """Spans without the white space at their ends; one of nothing else is empty."""
    trimmed = []
    for start, end in spans:
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
        trimmed.append((start, end))
    return trimmed


def cover(text: str, spans: Spans) -> Spans:
    """Spans that never go backwards and leave out nothing but white space.

    What normalising dropped (an accent, a control character) goes to the piece before it, at the start to the first.

    >>> cover("\x01a (b\x02 c", [(1, 2), (2, 3), (3, 4), (4, 5), (6, 8)])
    [(0, 2), (2, 2), (3, 4), (4, 6), (7, 8)]
    """
    spans = trim(text, spans)
    holders = [i for i, (start, end) in enumerate(spans) if end > start]
    if not holders:
        whole = (len(text) - len(text.lstrip()), len(text.rstrip()))
        return [(max(whole),) * 2 if i else (min(whole), max(whole)) for i in range(len(spans))]
    if lost := text[: spans[holders[0]][0]].lstrip():
        spans[holders[0]] = (spans[holders[0]][0] - len(lost), spans[holders[0]][1])
    for holder, after in zip(holders, [*holders[1:], None], strict=True):
        start, end = spans[holder]
        stop = len(text) if after is None else spans[after][0]
        if stop > end:
            spans[holder] = (start, end + len(text[end:stop].rstrip()))
    done = spans[holders[0]][0]
    for index, (start, end) in enumerate(spans):
        if start == end:  # a piece of white space, or none of the text: it stands where the one before it ends
            spans[index] = (done, done)
        else:
            done = end
    return spans
