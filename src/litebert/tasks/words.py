"""A text -> where its words begin and end, as whoever tags words is taught and asked."""

import re
import unicodedata

Places = list[tuple[int, int]]  # where each word of a text begins and ends

_WHOLE = re.compile(r"(?:[^\W\d_]\.){1,8}|['’][sS]")  # J. U.N. z.B. 's
_OWNED = re.compile(r"\S+?(?=['’][sS]$)")  # Ann's
_ALIKE = re.compile(r"(.)\1*")


def words_of(text: str) -> Places:
    """Words as CoNLL's files have them, about. They stand apart by white space; punctuation (as Unicode has it) before
    and behind one is a word for each run of one character, and so is an 's; inside a word it stays, and a full stop
    stays behind single letters.

    >>> text = "Ann's (U.N.) e-mails: \\"Köln/Bonn...\\""
    >>> [text[low:high] for low, high in words_of(text)]
    ['Ann', "'s", '(', 'U.N.', ')', 'e-mails', ':', '"', 'Köln/Bonn', '...', '"']
    """
    found: Places = []
    for match in re.finditer(r"\S+", text):
        (start, end), (low, high) = match.span(), match.span()
        while low < high and _marks(text[low]) and not _WHOLE.fullmatch(text, low, high):
            low += 1
        while low < high and _marks(text[high - 1]) and not _WHOLE.fullmatch(text, low, high):
            high -= 1
        owner = owned.end() if (owned := _OWNED.match(text, low, high)) else high
        found += [run.span() for run in _ALIKE.finditer(text, start, low)]
        found += [(a, b) for a, b in ((low, owner), (owner, high)) if a < b]
        found += [run.span() for run in _ALIKE.finditer(text, high, end)]
    return found


def _marks(char: str) -> bool:
    return unicodedata.category(char).startswith("P")
