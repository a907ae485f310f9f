"""ALBERT's pieces: a SentencePiece model under Google's normalisation and its digit-comma rule.

After SentencePiece, every piece that ends in a comma after a digit is split again: `▁9,` gives `▁9` and `,`
(google-research/albert, tokenization.py, encode_pieces). The parts depend on the piece alone, so they are a table.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.config import UserError
from litebert.text.normalise import Normaliser, Spans
from litebert.text.words import Kind

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5  # the types of a piece in sentencepiece_model.proto


class UnigramPieces:
    """Text -> ids through `sentencepiece`."""

    kind: Kind = "unigram"

    def __init__(self, model: bytes, normalise: Normaliser) -> None:
        from sentencepiece import SentencePieceProcessor

        kind = next((dict(_fields(value)).get(3, 1) for number, value in _fields(model) if number == 2), 1)
        if not model or kind != 1:
            raise UserError("it is empty" if not model else "it is a SentencePiece model, but not a unigram one")
        self.file, self.normalise = model, normalise
        self.model = SentencePieceProcessor(model_proto=model)
        self.names: list[str] = self.model.id_to_piece(list(range(self.size())))
        self.ids_of = {name: index for index, name in enumerate(self.names)}
        self.unknown = int(self.model.unk_id())
        # SentencePiece collapses spaces itself, if the model says so: then we need not
        self.collapses = bool(self.model.normalize("a  b") == self.model.normalize("a b"))

    def size(self) -> int:
        return int(self.model.get_piece_size())

    def find(self, piece: str) -> int | None:
        return self.ids_of.get(piece)

    def piece(self, index: int) -> str:
        return self.names[index]

    def special(self) -> set[int]:
        return {i for i in range(self.size()) if self.model.is_control(i) or self.model.is_unknown(i)}

    @cached_property
    def resplit(self) -> dict[int, list[int]]:
        """The pieces that end in a digit and a comma, and what stands for each of them.

        The original means to take away the ▁ that the second encoding adds inside a word, but compares text with
        bytes: on Python 3 it stays, and so it does here.
        """
        table = {}
        for index in digit_comma(self.names):
            parts = self.model.encode(self.names[index][:-1].replace("▁", ""), out_type=int)
            table[index] = [*map(int, parts), int(self.model.piece_to_id(","))]
        return table

    @cached_property
    def _growth(self) -> NDArray[np.int64]:
        """How many ids stand for each id."""
        sizes = np.ones(self.size(), np.int64)
        for index, parts in self.resplit.items():
            sizes[index] = len(parts)
        return sizes

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.model.encode(self.normalise(text), out_type=int)
        return [part for index in ids for part in self.resplit.get(index, (index,))]

    def bulk(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        normal = [self.normalise(text, collapse=not self.collapses) for text in texts]
        rows: list[NDArray[np.int32]] = self.model.encode(normal, out_type="numpy", num_threads=1)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        flat = np.concatenate(rows) if rows else np.zeros(0, np.int32)
        sizes = self._growth[flat]
        hits = np.flatnonzero(sizes != 1)
        if len(hits):
            ends = np.cumsum(sizes)
            grown = np.repeat(flat, sizes)
            for hit in hits:
                grown[ends[hit] - sizes[hit] : ends[hit]] = self.resplit[int(flat[hit])]
            bounds = np.concatenate([[0], ends])[np.concatenate([[0], np.cumsum(lengths)])]
            flat, lengths = grown, np.diff(bounds)
        return flat.astype(np.int32, copy=False), lengths

    def spans(self, text: str) -> tuple[list[int], Spans]:
        """Ids, and for each the part of the text its characters came from."""
        normal, origin = self.normalise.align(text)
        found: list[int] = self.model.encode(normal, out_type=int)
        if not found:
            return [], []
        sizes = [len(self.names[index]) for index in found]
        if self.unknown in found:  # how long an unknown piece is, only its text says
            sizes = [len(piece) for piece in self.model.encode(normal, out_type=str)]
        places, ends = self._places(normal)
        ids: list[int] = []
        spans: Spans = []
        at = 0
        for known, whole in zip(found, sizes, strict=True):
            for index, size in self._parts(known, whole) if known in self.resplit else ((known, whole),):
                ids.append(index)
                if size:
                    start, end = places[at], ends[at + size - 1]
                    spans.append((origin[start], origin[end - 1] + 1) if end > start else (origin[start],) * 2)
                else:
                    spans.append((spans[-1][1],) * 2 if spans else (0, 0))
                at += size
        return ids, spans

    def _places(self, normal: str) -> tuple[Sequence[int], Sequence[int]]:
        """sentencepiece normalises once more: where each character of that came from, and where the text goes on."""
        collapsed = "  " not in normal and normal == normal.strip()  # dropped characters may leave spaces behind
        if collapsed and self.keeps_ascii and normal.isascii() and normal.isprintable():
            return [0, *range(len(normal))], [0, *range(1, len(normal) + 1)]
        escaped, places = self.model.normalize(normal, with_offsets=True)
        ends = _next_places(places, len(normal))
        if escaped.startswith("▁"):  # put there by the model, from no character
            ends[0] = places[0]
        return places, ends

    @cached_property
    def keeps_ascii(self) -> bool:
        """Whether the model's own normaliser leaves printable ASCII as it is and puts one ▁ before it."""
        plain = "".join(map(chr, range(33, 127))) + " x"
        return bool(self.model.normalize(plain) == "▁" + plain.replace(" ", "▁"))

    def _parts(self, index: int, size: int) -> Iterator[tuple[int, int]]:
        """Each id that stands for a digit-comma piece, and how many of its characters are that id's."""
        parts = self.resplit[index]
        sizes = [len(self.names[part]) for part in parts]
        sizes[0] -= sum(sizes) - size  # the ▁ that the second encoding added where the piece had none
        yield from zip(parts, sizes, strict=True)

    def decode(self, ids: list[int]) -> str:
        return str(self.model.decode(ids))


def _next_places(places: list[int], size: int) -> list[int]:
    """For each normalised character where the text after its own goes on: the next place that differs.

    >>> _next_places([0, 0, 1, 1, 2, 5], 5)
    [1, 1, 2, 2, 5, 5]
    """
    following = accumulate(
        zip(reversed(places), reversed([*places[1:], size]), strict=True),
        lambda known, pair: (pair[0], pair[1] if pair[1] > pair[0] else known[1]),
        initial=(size, size),
    )
    return [end for _, end in following][:0:-1]


def digit_comma(names: Sequence[str]) -> list[int]:
    """The ids of the pieces that the digit-comma rule splits again."""
    return [i for i, name in enumerate(names) if len(name) > 1 and name[-1] == "," and name[-2].isdigit()]


def read_model(model: bytes) -> tuple[list[tuple[str, float, int]], dict[int, Any]]:
    """(piece, score, type) of each piece, and the normaliser's fields by number, out of the model's protobuf bytes."""
    pieces, normaliser = [], {}
    for number, value in _fields(model):
        if number == 1:
            piece = dict(_fields(value))
            score = struct.unpack("<f", piece[2])[0] if 2 in piece else 0.0
            pieces.append((piece[1].decode(), score, piece.get(3, NORMAL)))
        elif number == 3:
            normaliser = dict(_fields(value))
    return pieces, normaliser


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of one protobuf message: number, and an int or bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        number, wire = divmod(varint(), 8)
        if wire == 0:
            yield number, varint()
            continue
        size = {1: 8, 5: 4}[wire] if wire != 2 else varint()
        yield number, data[at : at + size]
        at += size
