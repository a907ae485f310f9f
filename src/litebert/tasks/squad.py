"""SQuAD 1.1 and 2.0: JSON -> questions -> windows of pieces -> answers as the passage writes them.

A passage longer than the model is read in windows that overlap; of the windows that hold a piece, the one with the most
context on its shorter side speaks for it (the max-context rule of BERT's and ALBERT's scripts). Answers are cut from
the original text through offsets, so what a tokenizer did to case, accents or spaces does not show.
"""

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.config import UserError
from litebert.corpus.read import open_bytes
from litebert.files import first_line
from litebert.tasks.example import Answer, Example
from litebert.tasks.frame import Frame, Ids
from litebert.text.tokenizer import Tokenizer

NO_ANSWER = -1  # the place of an answer that is not in a window


def read_squad(path: str | Path) -> Iterator[Example]:
    """Questions in the file's order; one that cannot be answered has no answers. Compressed files are fine."""
    try:
        data = json.loads(open_bytes(path))
        articles = data["data"]
        for article in articles:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    yield _question(question, paragraph["context"], str(path))
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise UserError(f"{path} is not a SQuAD file: {first_line(problem)!r}") from None


def _question(question: dict[str, Any], passage: str, path: str) -> Example:
    key = str(question["id"])
    impossible = bool(question.get("is_impossible", False))
    answers = () if impossible else tuple(Answer(str(a["text"]), int(a["answer_start"])) for a in question["answers"])
    asked = str(question["question"]).strip()
    return Example(key=key, texts=(asked, passage), target=answers, where=f"{path}, question {key}")


@dataclass(frozen=True)
class Window:
    """A question and a part of its passage, as the model takes them."""

    input_ids: Ids
    token_type_ids: Ids
    first: int  # where the passage's pieces begin
    offsets: list[tuple[int, int]]  # of those pieces, in the passage's text
    spoken: list[bool]  # whether this window is the one that speaks for the piece
    start: int = NO_ANSWER  # the pieces of the answer, counted in the window
    end: int = NO_ANSWER

    @property
    def allowed(self) -> list[bool]:
        """Where an answer may start or end: in the passage, or at the first piece, which says that there is none."""
        inside = range(self.first, self.first + len(self.offsets))
        return [at == 0 or at in inside for at in range(len(self.input_ids))]


Pieces = list[tuple[int, tuple[int, int]]]  # ids, and where they stand in their text


def read_pieces(tokenizer: Tokenizer, text: str) -> Pieces:
    read = tokenizer.encode(text)
    return [(i, span) for i, span, text in zip(read.input_ids, read.offsets, read.texts, strict=True) if text == 0]


def windows(
    tokenizer: Tokenizer,
    example: Example,
    length: int = 384,
    stride: int = 128,
    question_length: int = 64,
    known: tuple[Sequence[int], Pieces] | None = None,
) -> list[Window]:
    """The windows of a question, `stride` pieces apart; `known`: its ids and the passage's pieces, if they are."""
    question, passage = example.texts
    whole, pieces = known or (tokenizer.ids([question])[0].tolist(), read_pieces(tokenizer, passage))
    ids = list(whole[:question_length])
    frame = Frame(tokenizer)
    first, room = frame.second_at(ids), length - frame.specials(2) - len(ids)
    if room < 1:
        raise UserError(
            f"{example.where}: a question of {len(ids)} pieces leaves no room for its passage in {length}; "
            "set reading.question_length lower"
        )
    starts = [0]
    while starts[-1] + room < len(pieces):
        starts.append(starts[-1] + min(stride, room))
    ends = [min(start + room, len(pieces)) for start in starts]
    answer = _pieces_of(example.target, [span for _, span in pieces])
    found = []
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        part = pieces[start:end]
        places = (NO_ANSWER, NO_ANSWER)
        if answer is not None and start <= answer[0] and answer[1] < end:
            places = (answer[0] - start + first, answer[1] - start + first)
        row, types = frame.join([ids, [index for index, _ in part]])
        found.append(
            Window(
                input_ids=row,
                token_type_ids=types,
                first=first,
                offsets=[span for _, span in part],
                spoken=[len(starts) == 1 or _speaker(at, starts, ends) == number for at in range(start, end)],
                start=places[0],
                end=places[1],
            )
        )
    return found


def _speaker(piece: int, starts: Sequence[int], ends: Sequence[int]) -> int:
    """The window with the most context on its shorter side, and a little for being long: as the originals decide."""

    def context(number: int) -> float:
        start, end = starts[number], ends[number]
        if not start <= piece < end:
            return -1.0
        return min(piece - start, end - 1 - piece) + 0.01 * (end - start)

    first = bisect_right(ends, piece)  # windows that end before it cannot hold it, nor those that begin after it
    return max(range(first, bisect_right(starts, piece)), key=context)


def _pieces_of(target: Any, offsets: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The first and last piece that the first answer touches."""
    if not target:
        return None
    begin, end = target[0].start, target[0].start + len(target[0].text)
    touched = [at for at, (low, high) in enumerate(offsets) if low < end and high > begin]
    return (touched[0], touched[-1]) if touched else None


def answer_text(passage: str, window: Window, start: int, end: int) -> str:
    """The words from one piece to another, as the passage writes them; places count in the window."""
    low, high = window.offsets[start - window.first][0], window.offsets[end - window.first][1]
    return passage[low:high].strip()
