"""Text in, ids out: one `Tokenizer` over the `sentencepiece` and `tokenizers` libraries.

`Tokenizer.load` takes `spiece.model` (ALBERT), `vocab.txt` (BERT, DistilBERT), `tokenizer.json`, `vocab.json` with
`merges.txt` (RoBERTa), or a folder that holds one of them.
"""

import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from litebert.config import UserError

FILES = ("spiece.model", "tokenizer.json", "vocab.txt", "vocab.json")  # in this order: the first one found is read
BESIDE = ("tokenizer_config.json", "special_tokens_map.json", "merges.txt", "added_tokens.json")
SPECIALS = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}


@dataclass(frozen=True)
class Encoding:
    """One sequence as the model takes it, specials included."""

    input_ids: list[int]
    token_type_ids: list[int]


class Pieces(Protocol):
    """What a library behind the tokenizer has to give."""

    def size(self) -> int: ...
    def find(self, piece: str) -> int | None: ...
    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: list[int]) -> str: ...


class Tokenizer:
    """Ids for a text or a pair of texts, with the specials of its family."""

    def __init__(self, pieces: Pieces, files: dict[str, bytes]) -> None:
        self.pieces, self.files = pieces, files
        self.special_ids: dict[str, int] = {}
        for role, names in SPECIALS.items():
            found = next((index for index in map(pieces.find, names) if index is not None), None)
            if found is None:
                raise UserError(f"the tokenizer has none of the {role} pieces {' or '.join(names)}")
            self.special_ids[role] = found
        self.double_separator = pieces.find("[SEP]") is None  # RoBERTa: <s> A </s></s> B </s>

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        path = Path(path)
        folder, name = (path, None) if path.is_dir() else (path.parent, path.name)
        if name is None:
            name = next((known for known in FILES if (folder / known).is_file()), None)
            if name is None:
                raise UserError(f"{folder} holds no tokenizer; looked for {', '.join(FILES)}")
        elif not path.is_file():
            raise UserError(f"no tokenizer file {path}")
        files = {name: (folder / name).read_bytes()}
        if path.is_dir():
            files |= {beside: (folder / beside).read_bytes() for beside in BESIDE if (folder / beside).is_file()}
        return cls(_open(folder / name, files, name), files)

    def __len__(self) -> int:
        return self.pieces.size()

    def encode(self, text: str, pair: str | None = None) -> Encoding:
        first = [self.special_ids["cls"], *self.pieces.encode(text), self.special_ids["sep"]]
        if pair is None:
            return Encoding(first, [0] * len(first))
        second = [*self.pieces.encode(pair), self.special_ids["sep"]]
        if self.double_separator:
            second = [self.special_ids["sep"], *second]
        return Encoding(first + second, [0] * len(first) + [1] * len(second))

    def decode(self, ids: list[int]) -> str:
        return self.pieces.decode([index for index in ids if index not in self.special_ids.values()])

    def save(self, folder: Path) -> None:
        """The very files it was read from."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.files.items():
            (folder / name).write_bytes(content)


def _open(path: Path, files: dict[str, bytes], name: str) -> Pieces:
    settings = _settings(path.parent, files)
    try:
        if name.endswith(".model"):
            return SentencePieces(
                files[name], bool(settings.get("do_lower_case", True)), bool(settings.get("keep_accents"))
            )
        if name == "tokenizer.json":
            return LibraryPieces.from_json(files[name].decode())
        if name.endswith(".txt"):
            return LibraryPieces.wordpiece(files[name].decode().split("\n"), bool(settings.get("do_lower_case", True)))
        if name == "vocab.json" and "merges.txt" in files:
            return LibraryPieces.byte_level(json.loads(files[name]), files["merges.txt"].decode())
    except UserError:
        raise
    except Exception as problem:  # noqa: BLE001  the libraries raise plain Exception for a broken file
        raise UserError(f"{path} is not a tokenizer that can be read: {str(problem).splitlines()[0]}") from None
    raise UserError(f"{path} is not one of {', '.join(FILES)} (vocab.json goes with merges.txt)")


def _settings(folder: Path, files: dict[str, bytes]) -> dict[str, Any]:
    try:
        settings = json.loads(files.get("tokenizer_config.json", b"{}"))
    except ValueError as problem:
        raise UserError(f"{folder / 'tokenizer_config.json'} is not JSON: {problem}") from None
    return settings if isinstance(settings, dict) else {}


class SentencePieces:
    """ALBERT: NFKD, combining marks dropped, lower-cased, SentencePiece, then `9,` is split again into `9` and `,`."""

    def __init__(self, model: bytes, lower: bool, keep_accents: bool) -> None:
        from sentencepiece import SentencePieceProcessor

        self.model = SentencePieceProcessor(model_proto=model)
        self.lower, self.keep_accents = lower, keep_accents

    def size(self) -> int:
        return int(self.model.get_piece_size())

    def find(self, piece: str) -> int | None:
        index = int(self.model.piece_to_id(piece))
        return index if self.model.id_to_piece(index) == piece else None

    def normalise(self, text: str) -> str:
        text = " ".join(text.split())
        if not self.keep_accents:
            text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
        return text.lower() if self.lower else text

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for piece in self.model.encode(self.normalise(text), out_type=str):
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
                parts = self.model.encode(piece[:-1].replace("▁", ""), out_type=str)
                ids.extend(self.model.piece_to_id([*parts, ","]))
            else:
                ids.append(self.model.piece_to_id(piece))
        return ids

    def decode(self, ids: list[int]) -> str:
        return str(self.model.decode(ids))


class LibraryPieces:
    """WordPiece and byte-level BPE, through the `tokenizers` library."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.library.no_padding()
        self.library.no_truncation()

    @classmethod
    def from_json(cls, text: str) -> "LibraryPieces":
        from tokenizers import Tokenizer as Library

        return cls(Library.from_str(text))

    @classmethod
    def wordpiece(cls, lines: list[str], lower: bool) -> "LibraryPieces":
        from tokenizers import Tokenizer as Library
        from tokenizers import decoders, models, normalizers, pre_tokenizers

        vocabulary = {line.rstrip("\r"): index for index, line in enumerate(lines) if line}
        library = Library(models.WordPiece(vocabulary, unk_token="[UNK]"))
        library.normalizer = normalizers.BertNormalizer(lowercase=lower)
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        library.decoder = decoders.WordPiece()
        library.add_special_tokens([name for names in SPECIALS.values() for name in names if name in vocabulary])
        return cls(library)

    @classmethod
    def byte_level(cls, vocabulary: dict[str, int], merges: str) -> "LibraryPieces":
        from tokenizers import Tokenizer as Library
        from tokenizers import decoders, models, pre_tokenizers

        pairs = [tuple(line.split(" ")) for line in merges.split("\n") if line and not line.startswith("#version")]
        library = Library(models.BPE(vocabulary, [(a, b) for a, b in pairs]))
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        library.decoder = decoders.ByteLevel()
        library.add_special_tokens([name for names in SPECIALS.values() for name in names if name in vocabulary])
        return cls(library)

    def size(self) -> int:
        return int(self.library.get_vocab_size())

    def find(self, piece: str) -> int | None:
        found: int | None = self.library.token_to_id(piece)
        return found

    def encode(self, text: str) -> list[int]:
        return list(self.library.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: list[int]) -> str:
        return str(self.library.decode(ids))
