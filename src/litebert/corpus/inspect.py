"""A folder of shards -> what is in it: counts, shares and a few examples as the model will see them."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from litebert.config import seed_range
from litebert.corpus.batches import START, Stream, take
from litebert.corpus.examples import Batch, Examples
from litebert.text.tokenizer import Tokenizer

BINS = 8


@dataclass(frozen=True)
class Shown:
    """A piece of an example: what it is, and what is shown of it (itself where it is not predicted)."""

    piece: str
    seen: str
    predicted: bool


def inspect(stream: Stream, sample: int = 2000) -> tuple[dict[str, Any], Batch, Examples]:
    """Figures over a sample of the first epoch, its first batch for showing, and the examples themselves."""
    seed_range(stream, "seed")
    examples = stream.examples()
    epoch = examples.epoch(0)
    lengths: list[int] = []
    labels: list[int] = []
    runs: Counter[int] = Counter()
    spans = np.zeros(0, dtype=np.int64)
    fates: Counter[str] = Counter()
    first: Batch | None = None
    place, seen, maskable = START, 0, 0
    while seen < min(sample, len(epoch)):
        batch, place = take(examples, stream, place)
        first = first or batch
        lengths += batch.lengths.tolist()
        labels += [] if batch.pair_labels is None else batch.pair_labels.tolist()
        spans = batch.spans if not len(spans) else spans + batch.spans
        runs.update(run_lengths(batch.positions))
        fates.update(what_is_shown(batch, examples.vocabulary.mask_id))
        ids = batch.input_ids.copy()
        ids.ravel()[batch.positions] = batch.labels
        maskable += int((batch.attention_mask & ~examples.vocabulary.special[ids]).sum())
        seen += len(batch.lengths)
    assert first is not None
    manifest, predicted = examples.corpus.manifest, sum(fates.values())
    figures: dict[str, Any] = {
        "part": stream.part,
        "documents": examples.corpus.documents,
        "sentences": examples.corpus.sentences,
        "pieces": examples.corpus.pieces,
        "shards": len(examples.corpus.shards),
        "tokenizer": manifest["tokenizer"],
        "counts": manifest["counts"],
        "unknown_share_of_all": manifest["counts"]["unknown pieces"] / max(1, manifest["counts"]["pieces"]),
        "examples_in_epoch": len(epoch),
        "documents_that_make_no_example": examples.unusable,
        "sampled_examples": seen,
        "length_histogram": histogram(lengths, examples.config.length),
        "padding_free_length": float(np.mean(lengths)),
        "predicted_share": predicted / max(1, maskable),
        "shown_as": {kind: fates[kind] / max(1, predicted) for kind in ("mask", "another piece", "itself")},
        "span_shares": (spans / max(1, spans.sum())).tolist(),
        "run_shares": {str(n): runs[n] / sum(runs.values()) for n in sorted(runs)[:10]},
        "pair_label_share": float(np.mean(labels)) if labels else None,
    }
    return figures, first, examples


def histogram(lengths: list[int], most: int) -> dict[str, int]:
    """Examples by length, in bins of an eighth of the most."""
    edges = [round(most * step / BINS) for step in range(BINS + 1)]
    counts, _ = np.histogram(lengths, bins=np.array(edges) + 0.5)
    return {f"{low + 1}-{high}": int(n) for low, high, n in zip(edges, edges[1:], counts, strict=False)}


def run_lengths(positions: np.ndarray[Any, np.dtype[np.int64]]) -> list[int]:
    """Neighbouring predicted pieces, as they come out once spans touch."""
    if not len(positions):
        return []
    breaks = np.flatnonzero(np.diff(positions) != 1)
    edges = np.concatenate([[-1], breaks, [len(positions) - 1]])
    return np.diff(edges).tolist()  # type: ignore[no-any-return]


def what_is_shown(batch: Batch, mask_id: int) -> Counter[str]:
    seen = batch.input_ids.ravel()[batch.positions]
    masked = int((seen == mask_id).sum())
    same = int((seen == batch.labels).sum())
    return Counter({"mask": masked, "itself": same, "another piece": len(seen) - masked - same})


def show(batch: Batch, row: int, tokenizer: Tokenizer) -> list[Shown]:
    """One example, piece by piece."""
    width = batch.input_ids.shape[1]
    mine = (batch.positions // width) == row
    truth = dict(zip((batch.positions[mine] % width).tolist(), batch.labels[mine].tolist(), strict=True))
    shown = []
    for column in range(int(batch.lengths[row])):
        seen = tokenizer.piece(int(batch.input_ids[row, column]))
        piece = tokenizer.piece(truth[column]) if column in truth else seen
        shown.append(Shown(piece, seen, column in truth))
    return shown
