"""WordPiece and byte-level BPE, and any `tokenizer.json`, through the `tokenizers` library."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.config import UserError
from litebert.text.normalise import Normaliser, Spans, combining_ranges
from litebert.text.words import Kind

KINDS: dict[str, Kind] = {"Unigram": "unigram", "WordPiece": "wordpiece", "BPE": "bpe"}
SPECIALS = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}


class LibraryPieces:
    """Text -> ids through `tokenizers`. The name of a special piece in a text is text."""

    def __init__(self, library: Any) -> None:
        model = type(library.model).__name__
        if model not in KINDS:
            raise UserError(f"its model is {model}; litebert reads {', '.join(KINDS)}")
        if model == "WordPiece" and library.token_to_id(library.model.unk_token) is None:
            raise UserError(f"it has no {library.model.unk_token}, which WordPiece needs for words it cannot spell")
        self.library, self.kind = library, KINDS[model]
        library.no_padding()
        library.no_truncation()
        library.encode_special_tokens = True

    def size(self) -> int:
        return int(self.library.get_vocab_size())

    def find(self, piece: str) -> int | None:
        found: int | None = self.library.token_to_id(piece)
        return found

    def piece(self, index: int) -> str:
        name: str | None = self.library.id_to_token(index)
        return "" if name is None else name  # ids of an added piece may lie beyond a gap

    def special(self) -> set[int]:
        return {i for i, token in self.library.get_added_tokens_decoder().items() if token.special}

    def encode(self, text: str) -> list[int]:
        return list(self.library.encode(text, add_special_tokens=False).ids)

    def bulk(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        rows = [row.ids for row in self.library.encode_batch_fast(list(texts), add_special_tokens=False)]
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        flat = np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum()))
        return flat, lengths

    def spans(self, text: str) -> tuple[list[int], Spans]:
        found = self.library.encode(text, add_special_tokens=False)
        return list(found.ids), list(found.offsets)

    def decode(self, ids: list[int]) -> str:
        return str(self.library.decode(ids))

    def to_json(self) -> bytes:
        return bytes(self.library.to_str(pretty=False).encode())


def from_json(text: str) -> LibraryPieces:
    from tokenizers import Tokenizer

    return LibraryPieces(Tokenizer.from_str(text))


def from_wordpiece(lines: Sequence[str], settings: Mapping[str, Any]) -> LibraryPieces:
    """BERT's `vocab.txt`, a piece a line, with what its `tokenizer_config.json` says."""
    from tokenizers import Tokenizer, models

    pieces = [line.rstrip("\r") for line in lines]
    while pieces and not pieces[-1]:
        pieces.pop()
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    if len(vocabulary) != len(pieces):
        twice = next(piece for index, piece in enumerate(pieces) if vocabulary[piece] != index)
        raise UserError(f"the piece {twice!r} stands there twice; each line is one piece")
    library = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    dress_wordpiece(
        library,
        lower=bool(settings.get("do_lower_case", True)),
        strip_accents=settings.get("strip_accents"),
        chinese=bool(settings.get("tokenize_chinese_chars", True)),
    )
    return LibraryPieces(library)


def dress_wordpiece(library: Any, lower: bool, strip_accents: bool | None, chinese: bool = True) -> None:
    """Everything around the pieces, as BERT has it. `strip_accents=None`: where the text is lower-cased."""
    from tokenizers import decoders, normalizers, pre_tokenizers

    library.normalizer = normalizers.BertNormalizer(
        lowercase=lower, strip_accents=strip_accents, handle_chinese_chars=chinese
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    add_specials(library)
    if library.token_to_id("[CLS]") is not None and library.token_to_id("[SEP]") is not None:
        library.post_processor = pair_template(library, "[CLS]", "[SEP]")


def from_byte_level(vocabulary: dict[str, int], merges: str, settings: Mapping[str, Any]) -> LibraryPieces:
    """RoBERTa's and GPT-2's `vocab.json` and `merges.txt`."""
    from tokenizers import Tokenizer, models

    pairs = [line.split(" ") for line in merges.splitlines() if line and not line.startswith("#version")]
    broken = next((pair for pair in pairs if len(pair) != 2), None)
    if broken is not None:
        raise UserError(f"merges.txt has the line {' '.join(broken)!r}; each is two pieces and a space between")
    library = Tokenizer(models.BPE(vocabulary, [(a, b) for a, b in pairs]))
    dress_byte_level(library, bool(settings.get("add_prefix_space", False)))
    return LibraryPieces(library)


def dress_byte_level(library: Any, prefix_space: bool = False, normalise: Normaliser | None = None) -> None:
    """Everything around the pieces, as RoBERTa has it. Without `normalise` the bytes are the text's own."""
    from tokenizers import decoders, normalizers, pre_tokenizers, processors

    if normalise is not None:
        library.normalizer = normalizers.Sequence(normaliser_steps(normalise))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    library.decoder = decoders.ByteLevel()
    add_specials(library)
    cls, sep = library.token_to_id("<s>"), library.token_to_id("</s>")
    if cls is not None and sep is not None:
        library.post_processor = processors.RobertaProcessing(("</s>", sep), ("<s>", cls), True, prefix_space)


def add_specials(library: Any) -> None:
    """The special pieces that the vocabulary has. The mask takes the space before it, as `transformers` has it."""
    from tokenizers import AddedToken

    names = [name for names in SPECIALS.values() for name in names if library.token_to_id(name) is not None]
    byte_level = type(library.model).__name__ == "BPE"
    library.add_special_tokens(
        [AddedToken(name, lstrip=byte_level and name == "<mask>", normalized=False, special=True) for name in names]
    )


def pair_template(library: Any, cls: str, sep: str) -> Any:
    """[CLS] A [SEP] B [SEP], with the token types of the two texts."""
    from tokenizers import processors

    return processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(name, library.token_to_id(name)) for name in (cls, sep)],
    )


def normaliser_steps(normalise: Normaliser) -> list[Any]:
    """Our normaliser, white space aside, in the words of `tokenizers`."""
    from tokenizers import Regex, normalizers

    steps: list[Any] = []
    if not normalise.keep_accents:
        # its StripAccents drops all of category M, also the vowel signs of Indic scripts
        steps += [normalizers.NFKD(), normalizers.Replace(Regex(f"[{''.join(combining_ranges())}]"), "")]
    if normalise.lower:
        # its Lowercase looks at one character at a time and makes no final sigma
        final = r"\p{Cased}\p{Case_Ignorable}*\KΣ(?!\p{Case_Ignorable}*\p{Cased})"
        steps += [normalizers.Replace(Regex(final), "ς"), normalizers.Lowercase()]
    return steps
