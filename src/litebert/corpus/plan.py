"""Sentences -> which run of them each example of an epoch holds, for all shards at a time.

A plan is an array of (first, last) sentence numbers. A shard's follows from (seed, epoch, its number) alone. Documents
are walked side by side, those of many shards together: each turn takes one more example off every document that still
has sentences, so a long book costs as many turns as it has examples, once.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from litebert.config import ExampleConfig
from litebert.corpus.random import Keys, keys, uniform
from litebert.corpus.shards import Shard

Runs = NDArray[np.int64]  # (N, 2): first sentence, and the one after the last
TOGETHER = 1 << 22  # sentences, so that a plan's memory does not grow with the corpus


def document_spans(shard: Shard) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    ends = shard.document_ends.astype(np.int64)
    return np.concatenate([[0], ends[:-1]]).astype(np.int64) if len(ends) else ends, ends


def starts_of(shard: Shard) -> NDArray[np.int64]:
    """Where each sentence begins among the pieces; one more entry says where the last one ends."""
    return np.concatenate([[0], shard.sentence_ends]).astype(np.int64)


def unusable_documents(shard: Shard, config: ExampleConfig) -> int:
    """Documents that cannot make an example: those of one sentence where pairs are wanted."""
    first, last = document_spans(shard)
    return int((last - first < (2 if config.pairs else 1)).sum())


def plan_shards(shards: Sequence[Shard], config: ExampleConfig, room: int, seed: int, epoch: int) -> list[Runs]:
    """Each shard's runs; `room` is how many pieces an example has beside its specials."""
    key = keys(seed, epoch, np.arange(len(shards)))
    if config.layout == "full-sentences":
        return [
            _full_sentences(starts_of(shard), document_spans(shard)[0], room, float(uniform(key[number], 0)))
            for number, shard in enumerate(shards)
        ]
    return [runs for part in _groups(shards) for runs in _side_by_side(shards[part], key[part], config, room)]


def _groups(shards: Sequence[Shard]) -> Iterator[slice]:
    first = sentences = 0
    for number, shard in enumerate(shards):
        sentences += len(shard.sentence_ends)
        if sentences >= TOGETHER or number + 1 == len(shards):
            yield slice(first, number + 1)
            first, sentences = number + 1, 0


def _side_by_side(shards: Sequence[Shard], key: Keys, config: ExampleConfig, room: int) -> list[Runs]:
    """Sentences and pieces are counted through all of these shards, and at the end from each one's own beginning."""
    starts, spans = [starts_of(shard) for shard in shards], [document_spans(shard) for shard in shards]
    sentences = np.cumsum([0, *(len(start) - 1 for start in starts)])
    pieces = np.cumsum([0, *(start[-1] for start in starts)])
    start = np.concatenate(
        [np.zeros(1, np.int64), *(one[1:] + before for one, before in zip(starts, pieces, strict=False))]
    )
    at, last = (
        np.concatenate([span[which] + before for span, before in zip(spans, sentences, strict=False)])
        for which in (0, 1)
    )
    own = np.concatenate([keys(each, np.arange(len(span[0]))) for each, span in zip(key, spans, strict=True)])
    least = 2 if config.pairs else 1
    able = last - at >= least
    at, last, own = at[able], last[able], own[able]
    runs: list[Runs] = [np.zeros((0, 2), dtype=np.int64)]
    turn = 0
    while len(at):
        at = np.where(last - at < least, last - least, at)  # one sentence left over: take its neighbour along again
        if config.layout == "sentence-pair":
            end = at + 2
        else:
            end = _end(start, at, config, room, uniform(own[:, None], [2 * turn, 2 * turn + 1]))
        end = np.minimum(np.maximum(end, at + least), last)
        runs.append(np.stack([at, end], axis=1))
        more = end < last
        at, last, own = end[more], last[more], own[more]
        turn += 1
    made = np.concatenate(runs)
    made = made[np.argsort(made[:, 0], kind="stable")]
    borders = np.searchsorted(made[:, 0], sentences)
    return [made[a:b] - before for a, b, before in zip(borders, borders[1:], sentences, strict=False)]


def _end(
    start: NDArray[np.int64], at: NDArray[np.int64], config: ExampleConfig, room: int, luck: NDArray[np.float64]
) -> NDArray[np.int64]:
    """The sentence after the last of each example; `luck` (N, 2) says which are short, and how short."""
    short = 2 + (luck[:, 1] * (room - 1)).astype(np.int64)
    wanted = np.where(luck[:, 0] < config.short_rate, short, room)
    if config.layout == "segment-pair":  # sentences until the room is full: the last one is cut
        return np.searchsorted(start, start[at] + wanted, side="left")
    return np.searchsorted(start, start[at] + wanted, side="right") - 1  # doc-sentences: whole sentences only


def _full_sentences(start: NDArray[np.int64], first: NDArray[np.int64], room: int, luck: float) -> Runs:
    """Whole sentences up to the room, across documents; each document's end takes a piece more for its separator."""
    sentences = len(start) - 1
    crossed = np.zeros(sentences + 1, dtype=np.int64)
    crossed[first[1:]] = 1  # a separator stands before each document but the first
    begin = start + np.cumsum(crossed)
    reach = np.searchsorted(begin, begin + room, side="right") - 1
    head = max(1, int(luck * room))  # the first example's length differs by epoch, and so every border after it
    runs, at = [], 0
    end = max(1, int(np.searchsorted(begin, head, side="right")) - 1) if sentences else 0
    nexts = reach.tolist()
    while at < sentences:
        end = min(max(end, at + 1), sentences)
        runs.append((at, end))
        at = end
        end = nexts[at] if at < sentences else sentences
    return np.array(runs, dtype=np.int64).reshape(-1, 2)
