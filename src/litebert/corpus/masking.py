"""A batch of ids -> which pieces are predicted, and what the model sees in their place.

The paper's rule: spans of n words, p(n) ∝ 1/n up to N, whole words always, until a share of the maskable pieces is
covered. All examples of a batch are drawn side by side, a span each a turn, from their own random streams.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from litebert.config import MaskConfig
from litebert.corpus.random import Keys, keys, uniform

Ints = NDArray[np.integer]
Flags = NDArray[np.bool_]

PATIENCE = 12  # places tried for a span before another length is drawn: a short example may have no room for it


@dataclass(frozen=True)
class Vocabulary:
    """What masking has to know of a tokenizer."""

    mask_id: int
    special: Flags  # by id: never masked, never drawn
    starts_word: Flags  # by id

    def ordinary(self) -> NDArray[np.int32]:
        return np.flatnonzero(~self.special).astype(np.int32)


@dataclass(frozen=True)
class Masked:
    """Flat positions of the predicted pieces in order, what they were, and the ids with them replaced."""

    input_ids: NDArray[np.int32]  # (B, S)
    positions: NDArray[np.int64]  # (M,)
    labels: NDArray[np.int32]  # (M,)
    spans: NDArray[np.int64]  # spans drawn, by their number of words: spans[n - 1]


def mask_batch(
    ids: NDArray[np.int32], real: Flags, example: Keys, vocabulary: Vocabulary, config: MaskConfig
) -> Masked:
    """`real` is False at padding; `example` holds a key for each row."""
    maskable = real & ~vocabulary.special[ids]  # (B, S)
    if config.unit == "piece" and config.ngram == 1:
        chosen = _single_pieces(maskable, example, config.rate)
        spans = np.array([int(chosen.sum())])
    else:
        word = vocabulary.starts_word[ids] if config.unit == "word" else np.ones_like(maskable)
        chosen, spans = _spans(maskable, word, example, config)
    positions = np.flatnonzero(chosen)
    labels = ids.ravel()[positions]
    stream = keys(example)[positions // ids.shape[1]]
    column = positions % ids.shape[1]
    fate = uniform(stream, 3 * column)
    ordinary = vocabulary.ordinary()
    drawn = ordinary[(uniform(stream, 3 * column + 1) * len(ordinary)).astype(np.int64)]
    shown = np.where(fate < config.masked, np.int32(vocabulary.mask_id), labels)
    shown = np.where((fate >= config.masked) & (fate < config.masked + config.random), drawn, shown)
    seen = ids.copy()
    seen.ravel()[positions] = shown
    return Masked(seen, positions, labels, spans)


def _single_pieces(maskable: Flags, example: Keys, rate: float) -> Flags:
    """Exactly as many pieces as the rate says, every set of them equally likely."""
    wanted = np.floor(rate * maskable.sum(1) + uniform(example, 0)).astype(np.int64)  # right on average
    draw = uniform(example[:, None], np.arange(1, maskable.shape[1] + 1))
    draw[~maskable] = 2.0
    limit = np.sort(draw, axis=1)
    last = np.take_along_axis(limit, np.maximum(wanted - 1, 0)[:, None], axis=1)
    chosen: Flags = (draw <= last) & maskable & (wanted > 0)[:, None]
    return chosen


def _spans(maskable: Flags, word: Flags, example: Keys, config: MaskConfig) -> tuple[Flags, NDArray[np.int64]]:
    rows = len(maskable)
    before = np.zeros_like(maskable)
    before[:, 1:] = maskable[:, :-1]
    start = maskable & (word | ~before)  # a segment's first piece always starts a word
    index = np.cumsum(start, axis=1) - 1  # which word a piece belongs to
    words = start.sum(1)
    if not words.any():
        return np.zeros_like(maskable), np.zeros(config.ngram, dtype=np.int64)
    most = int(words.max()) + config.ngram
    size = np.zeros((rows, most), dtype=np.int64)  # pieces of each word
    at = np.nonzero(maskable)
    np.add.at(size, (at[0], index[at]), 1)
    gap = np.zeros((rows, most), dtype=np.int64)  # segments begun up to a word: a span stays inside one
    opens = start & ~before
    first = np.nonzero(start)
    gap[first[0], index[first]] = np.cumsum(opens, axis=1)[first]
    covered, drawn = _draw(size, gap, words, maskable.sum(1), example, config)
    chosen = np.zeros_like(maskable)
    chosen[at] = covered[at[0], index[at]]
    return chosen, drawn


def _threshold(
    size: Ints, words: Ints, pieces: Ints, share: NDArray[np.float64], config: MaskConfig
) -> NDArray[np.float64]:
    """How far to go so that the pieces covered are the rate's share on average, although the last span is kept whole.

    With spans of independent sizes s, going on until a threshold b is met covers T(b) = E[s] + Σ_{s<b} P(s) T(b - s)
    pieces on average. The threshold is a chance mixture of the two whole numbers whose T lie on either side.
    """
    target = config.rate * pieces
    most = int(target.max()) + 2
    longest = min(int(size.max()), most)
    word = np.stack([(size == n).sum(1) for n in range(longest + 1)], axis=1) / np.maximum(words, 1)[:, None]
    word[:, 0] = 0
    spans = np.zeros((len(words), most + 1))
    several = np.zeros((len(words), most + 1))
    several[:, 0] = 1
    for portion in share:  # the sizes of one word, of two, …
        wider = np.zeros_like(several)
        for n in range(1, longest + 1):
            wider[:, n:] += word[:, n : n + 1] * several[:, : most + 1 - n]
        several = wider
        spans += portion * several
    mean = (share * np.arange(1, len(share) + 1)).sum() * pieces / np.maximum(words, 1)
    covers = np.zeros((len(words), most + 1))
    for threshold in range(1, most + 1):
        covers[:, threshold] = mean + (spans[:, 1:threshold] * covers[:, threshold - 1 : 0 : -1]).sum(1)
    low = np.maximum((covers <= target[:, None]).sum(1) - 1, 0)
    rows, high = np.arange(len(words)), np.minimum(low + 1, most)
    gap = covers[rows, high] - covers[rows, low]
    threshold_of: NDArray[np.float64] = low + (target - covers[rows, low]) / np.where(gap > 0, gap, np.inf)
    return threshold_of


def _draw(
    size: Ints, gap: Ints, words: Ints, pieces: Ints, example: Keys, config: MaskConfig
) -> tuple[Flags, NDArray[np.int64]]:
    """Spans until each row's threshold is met. The length is drawn before the place, a taken place is drawn again, and
    the last span is kept whole, so the lengths keep their shares; the threshold is such that the rate is kept too."""
    rows = np.arange(len(words))
    lengths = np.arange(1, config.ngram + 1)
    share = (1 / lengths) / (1 / lengths).sum()
    threshold = np.cumsum(share)
    budget = np.floor(_threshold(size, words, pieces, share, config) + uniform(example, 0))
    covered = np.zeros(size.shape, dtype=bool)
    total = np.zeros(len(words), dtype=np.int64)
    span = np.zeros(len(words), dtype=np.int64)  # the length in hand; 0: draw one
    tried = np.zeros(len(words), dtype=np.int64)
    drawn = np.zeros(config.ngram, dtype=np.int64)
    turn = 0
    live = rows[(total < budget) & (words > 0)]
    patience = 64 + 8 * words  # turns: a row's own, so that it does not depend on its neighbours
    while len(live):
        fresh = live[span[live] == 0]
        span[fresh] = np.searchsorted(threshold, uniform(example[fresh], 2 * turn + 1), side="right") + 1
        place = (uniform(example[live], 2 * turn + 2) * words[live]).astype(np.int64)
        n = np.minimum(span[live], config.ngram)
        fits = (place + n <= words[live]) & (gap[live, place] == gap[live, np.minimum(place + n, words[live]) - 1])
        for step in range(config.ngram):
            fits &= ~(covered[live, place + step] & (step < n))
        good, where, n = live[fits], place[fits], n[fits]
        for step in range(config.ngram):
            inside = step < n
            covered[good[inside], where[inside] + step] = True
            total[good[inside]] += size[good[inside], where[inside] + step]
        drawn += np.bincount(n - 1, minlength=config.ngram)
        tried[live] += 1
        tried[good] = 0
        span[good] = 0
        span[live[tried[live] >= PATIENCE]] = 0
        tried[live[tried[live] >= PATIENCE]] = 0
        turn += 1
        live = live[(total[live] < budget[live]) & (turn < patience[live])]
    return covered, drawn
