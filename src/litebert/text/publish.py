"""A tokenizer -> the files with which `transformers` gives the same ids.

Its own reading of `spiece.model` does not: pieces such as `( " . -` lose or move the ▁ of their neighbours, and the
digit-comma rule is not there. So a `tokenizer.json` is written that says the whole procedure.
"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from litebert.text.library import SPECIALS, LibraryPieces, normaliser_steps, pair_template
from litebert.text.normalise import Normaliser
from litebert.text.unigram import CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, UnigramPieces, digit_comma, read_model

NEVER = -1000.0  # the score of a piece that must not be chosen: more than any way of spelling it costs
BYTE = 6


def unigram_json(pieces: UnigramPieces) -> bytes:
    """The SentencePiece model and the procedure around it as a `tokenizer.json`. To make it takes seconds, and a run
    saves one tokenizer many times."""
    return _unigram_json(pieces.file, pieces.normalise)


@lru_cache(maxsize=4)
def _unigram_json(model: bytes, normalise: Normaliser) -> bytes:
    pieces = UnigramPieces(model, normalise)
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    table, spec = read_model(pieces.file)
    vocabulary = _scores(table)
    unknown = next(i for i, (_, _, kind) in enumerate(table) if kind == UNKNOWN)
    library = Tokenizer(models.Unigram(vocabulary, unknown, any(kind == BYTE for _, _, kind in table)))
    library.normalizer = normalizers.Sequence(_steps(pieces, spec))
    scheme: Any = "always" if spec.get(3, 1) else "never"
    library.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)
    if numbers := _split_numbers(pieces):
        split = pre_tokenizers.Split(Regex(numbers), "isolated")
        library.pre_tokenizer = pre_tokenizers.Sequence([library.pre_tokenizer, split])
    library.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=scheme)
    special = [name for name, _, kind in table if kind in (CONTROL, UNKNOWN)]
    library.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in special])
    lay_out(library, pieces.find)
    return bytes(library.to_str().encode())


def _scores(table: list[tuple[str, float, int]]) -> list[tuple[str, float]]:
    """As SentencePiece has them, but a piece that it or the digit-comma rule would not choose never wins.

    The score of a symbol of the user's is unigram_model.cc's. What a char that no piece spells costs is taken from the
    lowest score; as no other way leads through such a char, that may be as low as it likes.
    """
    best = max((score for _, score, kind in table if kind == NORMAL), default=0.0)
    split_again = set(digit_comma([name for name, _, _ in table]))
    scores = []
    for index, (name, score, kind) in enumerate(table):
        if kind in (CONTROL, UNKNOWN, UNUSED) or index in split_again:
            score = NEVER
        elif kind == USER_DEFINED:
            score = len(name.encode()) * best - 0.1
        scores.append((name, score))
    return scores


def _steps(pieces: UnigramPieces, spec: Mapping[int, Any]) -> list[Any]:
    from tokenizers import Regex, normalizers

    spaces = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
    steps = [normalizers.Replace(Regex(f"[{spaces}]+"), " "), normalizers.Strip()]
    steps += normaliser_steps(pieces.normalise)
    if spec.get(2):
        # Precompiled looks at single characters where a syllable of Hangul or of an Indic script is several by now
        steps += [normalizers.NFC(), normalizers.Precompiled(spec[2])]
    if spec.get(4, 1):
        steps += [normalizers.Replace(Regex(" +"), " "), normalizers.Strip()]
    return steps


def _split_numbers(pieces: UnigramPieces) -> str:
    """Where SentencePiece chooses a digit-comma piece at the start of a word with more digits behind it.

    Then `12,100` is `▁12,` and `100` to it and `▁12` `,` `100` after the rule; without the piece the best way might be
    `▁1` `2,100`. A piece that reaches across the comma still wins in places, so each number is asked for: up to three
    digits behind the comma, and those of three followed by `%`, by `,000` or by what makes another piece there.
    """
    short = [f"{number:0{size}d}" for size in (1, 2, 3) for number in range(10**size)]
    long = {f"{number:03d}{tail}" for number in range(1000) for tail in (",000", "%")}
    for name in pieces.names:  # `1,320,000` with a piece such as `20,000`
        if re.fullmatch(r"\d{1,3},\d{3}", name):
            long |= {f"{number:03d}"[: 7 - len(name)] + name for number in range(1000)}
    found = []
    for index in pieces.resplit:
        if (name := pieces.names[index])[0] == "▁":
            behind = short + sorted(long) if len(name) < 6 else short  # years are not followed by millions
            rows = pieces.model.encode([name[1:] + digits for digits in behind], out_type="numpy")
            chosen = {digits: bool(row[0] == index) for digits, row in zip(behind, rows, strict=True)}
            found.append(re.escape(name) + _unless(chosen))
    return f"^(?:{'|'.join(found)})(?=\\d)" if found else ""


def _unless(chosen: Mapping[str, bool]) -> str:
    """A look ahead that fails before digits of which `chosen` says no; the longest that it knows decide."""
    refused = []
    for digits, wins in chosen.items():
        if wins:
            continue
        if len(digits) > 3:
            refused += [rf"{digits}(?!\d)"] if chosen[digits[:3]] else []
        else:
            but = [more[3:] for more, other in chosen.items() if other and more.startswith(f"{digits},")]
            refused.append(rf"{digits}(?!{'|'.join(['[0-9]', *but])})")
    return f"(?!{'|'.join(refused)})" if refused else ""


def library_json(pieces: LibraryPieces, find: Any) -> bytes:
    from tokenizers import Tokenizer

    library = Tokenizer.from_str(pieces.to_json().decode())
    lay_out(library, find)
    return bytes(library.to_str().encode())


def lay_out(library: Any, find: Any) -> None:
    """Single texts and pairs with the specials and token types of `Tokenizer.encode`."""
    from tokenizers import processors

    names = {role: next((name for name in SPECIALS[role] if find(name) is not None), None) for role in ("cls", "sep")}
    cls, sep = names["cls"], names["sep"]
    if cls is None or sep is None:
        return
    if sep == "[SEP]":
        library.post_processor = pair_template(library, cls, sep)
    else:
        prefix = bool(getattr(library.pre_tokenizer, "add_prefix_space", False))
        library.post_processor = processors.RobertaProcessing((sep, find(sep)), (cls, find(cls)), True, prefix)


def settings_json(settings: Mapping[str, Any]) -> bytes:
    return (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode()
