"""Examples -> sequences of pieces with their targets, as the network takes them.

A `Unit` is what is scored together: one sequence mostly, the options of a choice, or the windows of a text that is too
long and whose logits are pooled. A question's windows are units of their own, as the originals train them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from litebert.config import Reading, UserError
from litebert.corpus.pack import IGNORED as IGNORED
from litebert.tasks.example import Example, Task
from litebert.tasks.frame import Frame, Ids
from litebert.tasks.squad import Pieces, Window, read_pieces, windows
from litebert.tasks.taught import suited
from litebert.text.tokenizer import Tokenizer, fitted

AT_ONCE = 1024  # examples that are read together


@dataclass(frozen=True)
class Unit:
    """Sequences that are scored together."""

    example: int  # its number among those read
    ids: list[Ids]  # one a sequence
    types: list[Ids]
    target: Any = None  # a class, a number, a row of 0 and 1, a label a piece, a window's places, an option; or None
    lost: int = 0  # pieces that were cut off
    window: Window | None = None  # answer: where the pieces stand in the passage
    words: list[int] = field(default_factory=list)  # tag: the word that each piece begins, or -1

    @property
    def pieces(self) -> int:
        return sum(map(len, self.ids))


def units(tokenizer: Tokenizer, task: Task, examples: Iterable[Example], reading: Reading) -> Iterator[Unit]:
    """A few at a time, so any number of examples takes the same memory."""
    source, first = iter(examples), 0
    reading = suited(task, reading, reading.length or 512).reading
    makers = {"tag": _tags, "answer": _answers, "choice": _choices}
    make = makers.get(task.kind, _sentences)
    while some := list(islice(source, AT_ONCE)):
        yield from make(tokenizer, task, some, reading, first)
        first += len(some)


def _sentences(
    tokenizer: Tokenizer, task: Task, examples: Sequence[Example], reading: Reading, first: int
) -> Iterator[Unit]:
    """One text or a pair, and one answer for all of it."""
    rows, counts = tokenizer.ids([text for example in examples for text in example.texts])
    texts = iter(np.split(rows.astype(np.int32), np.cumsum(counts)[:-1]))
    frame = Frame(tokenizer)
    for number, example in enumerate(examples):
        parts = [next(texts) for _ in example.texts]
        room = reading.length - frame.specials(len(parts))
        kept = cut(parts, room)
        lost = sum(map(len, parts)) - sum(map(len, kept))
        chosen = [kept] if not lost or reading.long == "cut" else _windows(parts, room, reading.stride)
        made = [frame.join(each) for each in chosen]
        target = None if example.target is None else _number(task, example)
        away = _unseen(parts, chosen) if len(made) > 1 else lost
        yield Unit(first + number, [ids for ids, _ in made], [types for _, types in made], target, away)


def cut(parts: Sequence[Ids], room: int) -> list[Ids]:
    if room < len(parts):
        raise UserError(
            f"a length of {room + 2} leaves no room for text between the special pieces; set reading.length higher"
        )
    return [part[:size] for part, size in zip(parts, fitted([*map(len, parts)], room), strict=True)]


def _windows(parts: Sequence[Ids], room: int, stride: int) -> list[list[Ids]]:
    """The longer text in windows that overlap, each with the whole of the other or as much as half the room takes."""
    longer = int(np.argmax([len(part) for part in parts]))
    other = [part[: room // 2] for part in parts]
    left = room - sum(len(part) for number, part in enumerate(other) if number != longer)
    starts = [0]
    while starts[-1] + left < len(parts[longer]):
        starts.append(starts[-1] + min(stride, left))
    pieces = [parts[longer][start : start + left] for start in starts]
    return [[each if number == longer else part for number, part in enumerate(other)] for each in pieces]


def _unseen(parts: Sequence[Ids], chosen: Sequence[Sequence[Ids]]) -> int:
    """Pieces of a pair that no window shows: the end of the shorter text, where it takes more than half the room."""
    longer = int(np.argmax([len(part) for part in parts]))
    return sum(len(part) - len(chosen[0][number]) for number, part in enumerate(parts) if number != longer)


def _number(task: Task, example: Example) -> Any:
    if task.kind == "regress":
        return (float(example.target) - task.mean) / task.scale  # type: ignore[arg-type]
    if task.kind == "several":
        assert isinstance(example.target, tuple)
        return np.array([label in example.target for label in task.labels], dtype=np.float32)
    return task.labels.index(example.target)


def _tags(
    tokenizer: Tokenizer, task: Task, examples: Sequence[Example], reading: Reading, first: int
) -> Iterator[Unit]:
    """A label for the first piece of each word; what does not fit goes into further windows, or is cut."""
    frame = Frame(tokenizer)
    room = reading.length - frame.specials(1)
    for number, example in enumerate(examples):
        spaced = [text if not at else f" {text}" for at, text in enumerate(example.texts)]
        rows, counts = tokenizer.ids(spaced)
        pieces = np.split(rows.astype(np.int32), np.cumsum(counts)[:-1])
        starts = [0]
        used = 0
        for at, piece in enumerate(pieces):
            if used and used + len(piece) > room:
                starts.append(at)
                used = 0
            used += len(piece)
        runs = list(zip(starts, [*starts[1:], len(pieces)], strict=True))
        lost = 0
        if reading.long == "cut" and len(runs) > 1:
            lost = sum(len(piece) for piece in pieces[runs[0][1] :])
            runs = runs[:1]
        for low, high in runs:
            yield _tagged(frame, pieces[low:high], low, task, example, first + number, room, lost)


def _tagged(
    frame: Frame, pieces: Sequence[Ids], low: int, task: Task, example: Example, number: int, room: int, lost: int
) -> Unit:
    words = [-1] * len(frame.cls)
    for at, piece in enumerate(pieces):
        words += [low + at, *[-1] * (len(piece) - 1)][: len(piece)]
    row = np.concatenate([*pieces, np.zeros(0, np.int32)])
    ids, types = frame.join([row[:room]])
    lost += max(0, len(row) - room)
    words = [*words[: len(ids) - len(frame.sep)], *[-1] * len(frame.sep)]
    target = None
    if example.target is not None:
        tags: Any = example.target
        target = np.array([IGNORED if word < 0 else task.labels.index(tags[word]) for word in words], dtype=np.int64)
    return Unit(number, [ids], [types], target, lost, words=words)


def _answers(
    tokenizer: Tokenizer, task: Task, examples: Sequence[Example], reading: Reading, first: int
) -> Iterator[Unit]:
    passages: dict[str, Pieces] = {}  # that several questions share
    rows, counts = tokenizer.ids([example.texts[0] for example in examples])
    questions = np.split(rows, np.cumsum(counts)[:-1])
    for number, example in enumerate(examples):
        passage = example.texts[1]
        if passage not in passages:
            passages[passage] = read_pieces(tokenizer, passage)
        sizes = (reading.length, reading.stride, reading.question_length)
        for window in windows(tokenizer, example, *sizes, (questions[number].tolist(), passages[passage])):
            places = None if example.target is None else (max(0, window.start), max(0, window.end))
            lost = max(0, len(questions[number]) - reading.question_length)
            yield Unit(first + number, [window.input_ids], [window.token_type_ids], places, lost, window=window)


def _choices(
    tokenizer: Tokenizer, task: Task, examples: Sequence[Example], reading: Reading, first: int
) -> Iterator[Unit]:
    """[CLS] passage [SEP] option [SEP] for each: the passage loses its end, an option with its question its beginning
    (race_utils.py). Passages that several questions share are read once."""
    texts = list(dict.fromkeys(text for example in examples for text in example.texts))
    rows, counts = tokenizer.ids(texts)
    pieces = dict(zip(texts, np.split(rows.astype(np.int32), np.cumsum(counts)[:-1]), strict=True))
    frame = Frame(tokenizer)
    for number, example in enumerate(examples):
        passage, *options = (pieces[text] for text in example.texts)
        room = reading.length - frame.specials(2)
        asked = [option[-min(reading.question_length, room) :] for option in options]
        made = [frame.join([passage[: room - len(option)], option]) for option in asked]
        lost = max(0, len(passage) - min(room - len(option) for option in asked))
        lost += max(len(option) - len(kept) for option, kept in zip(options, asked, strict=True))
        yield Unit(first + number, [ids for ids, _ in made], [types for _, types in made], example.target, lost)
