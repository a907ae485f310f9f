"""Shards -> masked batches. What example i of epoch e looks like is a pure function of (seed, e, i)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from litebert.config import ExampleConfig, UserError
from litebert.corpus.masking import Masked, Vocabulary, mask_batch
from litebert.corpus.plan import plan_shards, unusable_documents
from litebert.corpus.random import Keys, keys, permutation, uniform
from litebert.corpus.shards import Corpus
from litebert.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Batch:
    """Examples as the model takes them, padded to the longest; all arrays are NumPy's."""

    input_ids: NDArray[np.int32]  # (B, S), masked
    token_type_ids: NDArray[np.int32]  # (B, S)
    lengths: NDArray[np.int64]  # (B,) real pieces, specials included
    positions: NDArray[np.int64]  # (M,) of the predicted pieces in the flattened batch
    labels: NDArray[np.int32]  # (M,) what they were
    pair_labels: NDArray[np.int64] | None  # (B,): 0 in order or next, 1 swapped or from elsewhere; None without pairs
    spans: NDArray[np.int64]  # spans drawn, by number of words

    @property
    def attention_mask(self) -> NDArray[np.bool_]:
        return np.arange(self.input_ids.shape[1]) < self.lengths[:, None]


@dataclass(frozen=True)
class Epoch:
    """Which sentences each example holds, in the order they are seen."""

    shard: NDArray[np.int32]
    first: NDArray[np.int32]
    last: NDArray[np.int32]
    number: NDArray[np.int64]  # of each in the corpus's own order

    def __len__(self) -> int:
        return len(self.shard)


class Examples:
    """All examples of a corpus under one config and seed."""

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, config: ExampleConfig, seed: int) -> None:
        corpus.check_tokenizer(tokenizer.checksum)
        self.corpus, self.config, self.seed = corpus, config, seed
        self.cls_id, self.sep_id, self.pad_id = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id
        special = np.zeros(len(tokenizer), dtype=bool)
        special[list(tokenizer.special_ids)] = True
        self.vocabulary = Vocabulary(tokenizer.mask_id, special, tokenizer.word_start_table)
        self.between = 2 if tokenizer.double_separator else 1  # separators between the two texts of a pair
        self.room = config.length - (2 + self.between if config.pairs else 2)
        self.documents_before = np.cumsum([0, *(info.documents for info in corpus.infos)])  # each shard
        self.unusable = sum(unusable_documents(shard, config) for shard in corpus.shards)
        if config.objective == "nsp" and corpus.documents < 2:
            raise UserError("next-sentence negatives come from another document, and this corpus has only one")
        if self.unusable == corpus.documents:
            raise UserError(
                "no document of this corpus has two sentences, which a pair needs; use layout full-sentences"
            )
        self.epoch = lru_cache(maxsize=2)(self._epoch)

    def content(self, epoch: int) -> int:
        """The epoch whose examples and masks are shown: with static copies they come round again."""
        return epoch % self.config.static_copies if self.config.static_copies else epoch

    def _epoch(self, epoch: int) -> Epoch:
        content = self.content(epoch)
        plans = plan_shards(self.corpus.shards, self.config, self.room, self.seed, content)
        shard = np.repeat(np.arange(len(plans), dtype=np.int32), [len(each) for each in plans])
        runs = np.concatenate(plans).astype(np.int32)
        order = permutation(len(runs), self.seed, epoch)
        number = order
        if self.config.twins:
            order = np.repeat(order, 2)
            number = 2 * order + np.arange(len(order)) % 2
        return Epoch(shard[order], runs[order, 0], runs[order, 1], number)

    def batch(self, epoch: int, indices: Sequence[int] | NDArray[np.int64]) -> Batch:
        """These examples of that epoch, masked."""
        plan, index = self.epoch(epoch), np.asarray(indices, dtype=np.int64)
        shard, first, last = (part[index].astype(np.int64) for part in (plan.shard, plan.first, plan.last))
        example = keys(self.seed, self.content(epoch), shard, first, last)
        if self.config.pairs:
            ids, types, lengths, labels = self._pairs(
                shard, first, last, example, self._labels(epoch, plan.number[index])
            )
            if self.config.twins:  # cut alike, masked each in its own way
                example = keys(example, plan.number[index] % 2)
        else:
            ids, types, lengths = self._runs(shard, first, last, example)
            labels = None
        real = np.arange(ids.shape[1]) < lengths[:, None]
        masked: Masked = mask_batch(ids, real, example, self.vocabulary, self.config.mask)
        return Batch(masked.input_ids, types, lengths, masked.positions, masked.labels, labels, masked.spans)

    def _labels(self, epoch: int, number: NDArray[np.int64]) -> NDArray[np.int64]:
        """Exactly half are 1: neighbours in the corpus's order have opposite labels, a coin says which."""
        if self.config.objective == "mlm":
            return np.zeros(len(number), dtype=np.int64)
        if self.config.twins:
            return number % 2
        coin = uniform(keys(self.seed, self.content(epoch), number // 2), 7) < 0.5
        labels: NDArray[np.int64] = (coin ^ (number % 2 == 1)).astype(np.int64)
        return labels

    def _pairs(
        self,
        shard: NDArray[np.int64],
        first: NDArray[np.int64],
        last: NDArray[np.int64],
        example: Keys,
        labels: NDArray[np.int64],
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64], NDArray[np.int64] | None]:
        luck = uniform(keys(example, 1)[:, None], np.arange(6))
        loose = luck[:, 3] < self.config.anywhere
        cut = first + 1 + (luck[:, 0] * (last - first - 1)).astype(np.int64)
        texts = []
        for row in range(len(shard)):
            number = int(shard[row])
            begin, middle, end = (self._start(number, int(at)) for at in (first[row], cut[row], last[row]))
            if loose[row]:
                begin, middle, end = self._anywhere(begin, end, luck[row, 4:6])
            a, b = (number, begin, middle), (number, middle, end)
            if labels[row] and self.config.objective == "nsp":
                b = self._elsewhere(number, int(first[row]), end - middle, luck[row, 1:3])
            elif labels[row]:
                a, b = b, a
            texts.append(self._fit(a, b))
        lengths = np.array([a[2] - a[1] + b[2] - b[1] + 2 + self.between for a, b in texts], dtype=np.int64)
        ids = np.full((len(texts), int(lengths.max())), self.pad_id, dtype=np.int32)
        types = np.zeros_like(ids)
        ids[:, 0] = self.cls_id
        for row, ((a_in, a0, a1), (b_in, b0, b1)) in enumerate(texts):
            middle, end = 1 + a1 - a0, int(lengths[row]) - 1
            ids[row, 1:middle] = self.corpus.shards[a_in].ids[a0:a1]
            ids[row, middle : middle + self.between] = self.sep_id
            ids[row, middle + self.between : end] = self.corpus.shards[b_in].ids[b0:b1]
            ids[row, end] = self.sep_id
            if self.between == 1:  # RoBERTa has one token type
                types[row, middle + 1 : end + 1] = 1
        return ids, types, lengths, None if self.config.objective == "mlm" else labels

    def _fit(
        self, a: tuple[int, int, int], b: tuple[int, int, int]
    ) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Cut the longer text first, as the original does, but only at the outer ends: the first text loses its front,
        the second its back, swapped or not. Where they meet a sentence ends and another begins, and neither says which
        came first in the document."""
        size_a, size_b = a[2] - a[1], b[2] - b[1]
        if size_a + size_b <= self.room:
            return a, b
        keep_b = min(size_b, max(self.room // 2, self.room - size_a))
        keep_a = min(size_a, self.room - keep_b)
        return (a[0], a[2] - keep_a, a[2]), (b[0], b[1], b[1] + keep_b)

    def _anywhere(self, begin: int, end: int, luck: NDArray[np.float64]) -> tuple[int, int, int]:
        """Three places inside a run, all of them at any piece, so that no full stop tells what was swapped: only how
        the words go on where the texts meet."""
        size = end - begin
        spare = max(size - self.room, size // 4)
        begin, kept = begin + int(luck[0] * (spare + 1)), size - spare
        return begin, begin + 1 + int(luck[1] * (kept - 1)), begin + kept

    def _start(self, shard: int, sentence: int) -> int:
        """Where a sentence begins among the pieces of its shard."""
        return int(self.corpus.shards[shard].sentence_ends[sentence - 1]) if sentence else 0

    def _elsewhere(self, shard: int, sentence: int, size: int, luck: NDArray[np.float64]) -> tuple[int, int, int]:
        """Sentences of another document, as many pieces of them as it has in place of those, so that the length tells
        nothing; a single one where the layout has single ones."""
        inside = int(np.searchsorted(self.corpus.shards[shard].document_ends, sentence, side="right"))
        chosen = int(luck[0] * (self.corpus.documents - 1))
        chosen += chosen >= int(self.documents_before[shard]) + inside
        number = int(np.searchsorted(self.documents_before, chosen, side="right")) - 1
        other = chosen - int(self.documents_before[number])
        ends = self.corpus.shards[number].sentence_ends
        documents = self.corpus.shards[number].document_ends
        first, last = int(documents[other - 1]) if other else 0, int(documents[other])
        if self.config.layout == "sentence-pair":
            at = first + int(luck[1] * (last - first))
            return number, self._start(number, at), int(ends[at])
        latest = int(np.searchsorted(ends[first:last], max(0, int(ends[last - 1]) - size), side="right")) + first
        at = first + int(luck[1] * (min(latest, last - 1) - first + 1))
        begin = self._start(number, at)
        end = min(int(np.searchsorted(ends, begin + size, side="left")), last - 1)
        return number, begin, int(ends[end])

    def _runs(
        self, shard: NDArray[np.int64], first: NDArray[np.int64], last: NDArray[np.int64], example: Keys
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
        rows = []
        luck = uniform(keys(example, 1), 0)
        for row in range(len(shard)):
            number, ids = int(shard[row]), self.corpus.shards[shard[row]].ids
            begin, end = self._start(number, int(first[row])), self._start(number, int(last[row]))
            begin += int(luck[row] * (max(0, end - begin - self.room) + 1))
            end = min(end, begin + self.room)
            text = np.asarray(ids[begin:end], dtype=np.int32)
            borders = self.corpus.shards[number].document_ends
            low, high = np.searchsorted(borders, first[row], "right"), np.searchsorted(borders, last[row], "left")
            inside = [self._start(number, int(border)) - begin for border in borders[low:high]]
            rows.append(np.insert(text, inside, self.sep_id) if inside else text)
        lengths = np.array([len(text) + 2 for text in rows], dtype=np.int64)
        wide = np.full((len(rows), int(lengths.max())), self.pad_id, dtype=np.int32)
        wide[:, 0] = self.cls_id
        for row, text in enumerate(rows):
            wide[row, 1 : len(text) + 1] = text
            wide[row, len(text) + 1] = self.sep_id
        return wide, np.zeros_like(wide), lengths
