"""Text in, ids out: one `Tokenizer` over the `sentencepiece` and `tokenizers` libraries.

`Tokenizer.load` takes `spiece.model` (ALBERT), `vocab.txt` (BERT, DistilBERT), `tokenizer.json`, `vocab.json` with
`merges.txt` (RoBERTa), or a folder that holds one of them. `save` writes a folder that `transformers` reads too.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from litebert.config import UserError
from litebert.files import first_line, meant, read_json, replace_file
from litebert.text.library import SPECIALS, LibraryPieces, from_byte_level, from_json, from_wordpiece
from litebert.text.normalise import Normaliser, Spans, cover
from litebert.text.publish import library_json, settings_json, unigram_json
from litebert.text.unigram import UnigramPieces
from litebert.text.words import Kind, starts_word

FILES = ("spiece.model", "tokenizer.json", "vocab.txt", "vocab.json")  # in this order: the first one found is read
BESIDE = ("tokenizer_config.json", "merges.txt")
SHIPPED = Path(str(resources.files("litebert") / "shipped"))  # models that come with the package, by their names
SHIPPED_NAMES = tuple(folder.name for folder in SHIPPED.glob("*/"))

_ELSEWHERE = ("name_or_path", "tokenizer_file", "special_tokens_map_file", "auto_map")  # settings of another place

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """One sequence as the model takes it, specials included: a list each, as long as the sequence."""

    input_ids: list[int]
    token_type_ids: list[int]
    special_mask: list[bool]  # specials and masks; an unknown piece stands for text
    word_starts: list[bool]
    offsets: Spans  # (start, end) into the original text; (0, 0) for specials
    texts: list[int]  # whose text that is: 0 the first, 1 the pair, -1 a special


class Pieces(Protocol):
    """What a library behind the tokenizer has to give."""

    @property
    def kind(self) -> Kind: ...
    def size(self) -> int: ...
    def find(self, piece: str) -> int | None: ...
    def piece(self, index: int) -> str: ...
    def special(self) -> set[int]: ...
    def encode(self, text: str) -> list[int]: ...
    def spans(self, text: str) -> tuple[list[int], Spans]: ...
    def bulk(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]: ...
    def decode(self, ids: list[int]) -> str: ...


_SURROGATE = re.compile("[\ud800-\udfff]")
_TORN = "the text holds half a surrogate pair, which is no character; was it cut, or decoded wrongly?"


class Tokenizer:
    """Ids for a text or a pair of texts, with the specials of its family.

    Names of special pieces in a text are text, but for the mask in `encode`: it stands where a reader wants a guess.
    """

    def __init__(
        self, pieces: Pieces, files: Mapping[str, bytes] | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.pieces, self.files, self.settings = pieces, dict(files or {}), dict(settings or {})
        self.kind: Kind = pieces.kind
        self.roles = {role: self._find(role) for role in SPECIALS}
        known = {index for index in self.roles.values() if index is not None}
        self.special_ids: frozenset[int] = frozenset(pieces.special() | known)
        self.double_separator = pieces.find("[SEP]") is None  # RoBERTa: <s> A </s></s> B </s>, and one token type

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        path = Path(path)
        if not path.exists() and path.name == str(path) and (SHIPPED / path).is_dir():
            path = SHIPPED / path
        if path.is_dir():
            name = next((known for known in FILES if (path / known).is_file()), None)
            if name is None:
                raise UserError(f"{path} holds no tokenizer; looked for {', '.join(FILES)}")
            path = path / name
        elif not path.is_file():
            remedy = f"; give one of {', '.join(FILES)} or a folder with one"
            raise UserError(f"no tokenizer file {path}{meant(path, SHIPPED_NAMES) or remedy}")
        beside = path.parent / "tokenizer_config.json"
        settings = read_json(beside) if beside.is_file() else {}
        pieces, files = _open(path, settings)
        return cls(pieces, files, settings)

    def _find(self, role: str) -> int | None:
        """The id of a special piece: as the settings name it, or by the names in use."""
        named = self.settings.get(f"{role}_token")
        named = named.get("content") if isinstance(named, dict) else named
        names = ([named] if isinstance(named, str) else []) + list(SPECIALS[role])
        return next((index for index in map(self.pieces.find, names) if index is not None), None)

    def _role(self, role: str) -> int:
        index = self.roles[role]
        if index is None:
            raise UserError(
                f"this tokenizer has no {role} piece ({' or '.join(SPECIALS[role])}); use one trained with specials"
            )
        return index

    @property
    def pad_id(self) -> int:
        return self._role("pad")

    @property
    def unk_id(self) -> int:
        return self._role("unk")

    @property
    def cls_id(self) -> int:
        return self._role("cls")

    @property
    def sep_id(self) -> int:
        return self._role("sep")

    @property
    def mask_id(self) -> int:
        return self._role("mask")

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of what decides the ids, the same before and after saving: shards and models name it."""
        if isinstance(self.pieces, UnigramPieces):
            normalise = self.pieces.normalise
            return sha256(self.pieces.file + f"{normalise.lower} {normalise.keep_accents}".encode()).hexdigest()
        assert isinstance(self.pieces, LibraryPieces)
        return sha256(library_json(self.pieces, self.pieces.find)).hexdigest()

    def __len__(self) -> int:
        return self.pieces.size()

    def piece(self, index: int) -> str:
        if not 0 <= index < len(self):
            raise UserError(f"no piece {index}; this tokenizer has 0 to {len(self) - 1}")
        return self.pieces.piece(index)

    @cached_property
    def word_start_table(self) -> NDArray[np.bool_]:
        """For each id whether it starts a word wherever it stands; the first piece of a text always does.

        Specials do: no word reaches across them.
        """
        starts = (i in self.special_ids or starts_word(self.pieces.piece(i), self.kind) for i in range(len(self)))
        return np.fromiter(starts, np.bool_, len(self))

    def encode(self, text: str, pair: str | None = None, max_length: int | None = None) -> Encoding:
        """One text, or a pair, with its specials; longer than `max_length`, the longer text loses its end first."""
        rows = [self._spans(each) for each in ((text,) if pair is None else (text, pair))]
        cls, sep = self.roles["cls"], self.roles["sep"]
        before = [[cls], [sep] if self.double_separator else []]
        frame = [[i for i in special if i is not None] for special in before[: len(rows)]]
        after = [] if sep is None else [sep]
        if max_length is not None:
            rows = _truncate(rows, max_length, sum(map(len, frame)) + len(after) * len(rows))
        ids: list[int] = []
        types: list[int] = []
        offsets: Spans = []
        texts: list[int] = []
        for number, (found, spans) in enumerate(rows):
            ids += frame[number] + found + after
            offsets += [(0, 0)] * len(frame[number]) + spans + [(0, 0)] * len(after)
            texts += [-1] * len(frame[number]) + [number] * len(found) + [-1] * len(after)
            types += [0 if self.double_separator else number] * (len(ids) - len(types))
        return Encoding(
            input_ids=ids,
            token_type_ids=types,
            special_mask=[index in self.special_ids and index != self.roles["unk"] for index in ids],
            word_starts=[bool(self.word_start_table[i]) or new for i, new in zip(ids, _changes(texts), strict=True)],
            offsets=offsets,
            texts=texts,
        )

    def _spans(self, text: str) -> tuple[list[int], Spans]:
        if not text.isascii() and _SURROGATE.search(text):
            raise UserError(_TORN)
        mask = self.roles["mask"]
        if mask is None or (name := self.pieces.piece(mask)) not in text:
            ids, spans = self.pieces.spans(text)
            return ids, cover(text, spans)
        ids, spans, at = [], [], 0
        for part in re.split(rf"(\s*{re.escape(name)})", text):  # the space before a mask is the mask's
            if part.endswith(name):
                ids.append(mask)
                spans.append((at + len(part) - len(name), at + len(part)))
            elif part:
                more, places = self.pieces.spans(part)
                ids += more
                spans += [(start + at, end + at) for start, end in cover(part, places)]
            at += len(part)
        return ids, spans

    def ids(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """All ids of many texts in one row, and how many each text has: no specials, no offsets, for corpora."""
        try:
            return self.pieces.bulk(texts)
        except TypeError:  # of both libraries; to look before would cost every corpus its time
            if any(map(_SURROGATE.search, texts)):
                raise UserError(_TORN) from None
            raise

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the pieces, specials left out."""
        return self.pieces.decode([int(index) for index in ids if index not in self.special_ids])

    def save(self, folder: str | Path) -> None:
        """A folder that `load` reads back, and with which `transformers` gives the same ids."""
        folder = Path(folder)
        settings = self._published_settings()
        files = self.files | {"tokenizer_config.json": settings_json(settings)}
        if isinstance(self.pieces, UnigramPieces):
            files["tokenizer.json"] = unigram_json(self.pieces)
        elif isinstance(self.pieces, LibraryPieces):
            files["tokenizer.json"] = library_json(self.pieces, self.pieces.find)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name in {*FILES, *BESIDE} - set(files):  # of another tokenizer that lay here
                (folder / name).unlink(missing_ok=True)
            for name, content in files.items():
                replace_file(folder / name, content)
        except OSError as problem:
            raise UserError(f"cannot write {folder}: {problem.strerror or problem}") from None

    def _published_settings(self) -> dict[str, Any]:
        """`tokenizer_config.json`: ours, with whatever else the one that was read said."""
        settings = {key: value for key, value in self.settings.items() if key not in _ELSEWHERE}
        # the plain class takes tokenizer.json as it is; those of the families build their own from the vocabulary
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        settings |= {f"{r}_token": self.pieces.piece(index) for r, index in self.roles.items() if index is not None}
        if isinstance(self.pieces, UnigramPieces):
            normalise = self.pieces.normalise
            settings |= {"do_lower_case": normalise.lower, "keep_accents": normalise.keep_accents}
        settings.setdefault("clean_up_tokenization_spaces", False)
        types = [] if self.double_separator else ["token_type_ids"]
        settings.setdefault("model_input_names", ["input_ids", *types, "attention_mask"])
        return settings


def _changes(texts: Sequence[int]) -> list[bool]:
    """Where another text begins.

    >>> _changes([-1, 0, 0, -1, 1])
    [True, True, False, True, True]
    """
    return [here != before for here, before in zip(texts, [None, *texts], strict=False)]


def _truncate(rows: list[tuple[list[int], Spans]], most: int, specials: int) -> list[tuple[list[int], Spans]]:
    """The longer text loses its end until both fit, then both do: as `transformers` truncates `longest_first`."""
    room = most - specials
    if room < 0:
        raise UserError(f"max_length = {most} leaves no room for text; {specials} special pieces stand around it")
    sizes = fitted([len(ids) for ids, _ in rows], room)
    return [(ids[:size], spans[:size]) for (ids, spans), size in zip(rows, sizes, strict=True)]


def fitted(sizes: list[int], room: int) -> list[int]:
    """What is left of one text or two when together they may have so many pieces.

    >>> fitted([9, 3], 8), fitted([9, 9], 7), fitted([9], 7), fitted([2, 3], 8)
    ([5, 3], [3, 4], [7], [2, 3])
    """
    if sum(sizes) <= room:
        return sizes
    if len(sizes) == 1:
        return [room]
    short = min(sizes)
    long = max(short, room - short)
    if short + long > room:
        short, long = room // 2, room - room // 2
    return [long, short] if sizes[0] > sizes[1] else [short, long]


def _open(path: Path, settings: Mapping[str, Any]) -> tuple[Pieces, dict[str, bytes]]:
    """The pieces in a file, and what `save` has to write again under the usual names."""
    content = _read(path)
    if path.name.endswith(".model"):
        normalise = Normaliser(
            lower=bool(settings.get("do_lower_case", True)), keep_accents=bool(settings.get("keep_accents", False))
        )
        return _guard(path, lambda: UnigramPieces(content, normalise)), {"spiece.model": content}
    if path.name.endswith("tokenizer.json"):
        return _guard(path, lambda: from_json(content.decode("utf-8"))), {}
    if path.name.endswith(".txt") and not path.name.endswith("merges.txt"):
        lines = _guard(path, lambda: content.decode("utf-8").split("\n"))
        return _guard(path, lambda: from_wordpiece(lines, settings)), {"vocab.txt": content}
    if path.name.endswith("vocab.json"):
        beside = path.with_name(path.name.removesuffix("vocab.json") + "merges.txt")
        if not beside.is_file():
            raise UserError(f"{path} goes with {beside.name}, which is not beside it; put both into one folder")
        merges = _read(beside)
        pieces = _guard(path, lambda: from_byte_level(json.loads(content), merges.decode("utf-8"), settings))
        return pieces, {"vocab.json": content, "merges.txt": merges}
    raise UserError(f"{path} is no tokenizer file; give one of {', '.join(FILES)} (vocab.json goes with merges.txt)")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise UserError(f"cannot read {path}: {problem.strerror or problem}") from None


def _guard(path: Path, work: Callable[[], T]) -> T:
    """What the libraries raise for a broken file, even a Rust panic, in one line."""
    try:
        return work()
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except UserError as problem:
        raise UserError(f"{path}: {problem}") from None
    except BaseException as problem:  # noqa: BLE001
        raise UserError(f"{path} is not a tokenizer that can be read: {first_line(problem)}") from None
