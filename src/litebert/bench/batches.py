"""`litebert bench batches`: masked batches a second, ours and `transformers`' whole-word collator on the same examples.

Ours starts from the shards and makes the whole example: two segments, their order, n-gram masks. The collator is given
the finished ids with their special masks and offsets, and pads and masks whole words. One core each; then our loader as
training uses it, with two processes that work ahead.
"""

import os
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from litebert.bench.peer import transformers
from litebert.bench.timing import interleaved
from litebert.config import ExampleConfig
from litebert.corpus.batches import START, Stream, batches, take
from litebert.corpus.examples import Batch, Examples
from litebert.text.tokenizer import Tokenizer


def bench_batches(
    folder: str | Path,
    length: int = 512,
    size: int = 256,
    repeats: int = 10,
    workers: int = 2,
    say: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """Real pieces (no padding) a second."""
    stream = Stream(str(folder), ExampleConfig(length=length), size)
    examples = stream.examples()
    batch, _ = take(examples, stream, START)
    collate, collated, version = _collator(Path(folder), batch, examples)
    say("one core")
    place, made = START, []

    def ours() -> None:
        nonlocal place
        batch, place = take(examples, stream, place)
        made.append(int(batch.lengths.sum()))

    seconds = interleaved({"transformers": collate, "litebert": ours}, repeats)
    say("the loader")
    loader = batches(stream, workers=workers)
    for _ in range(8 * workers):  # what was made ahead while we were not looking does not count
        next(loader)
    start, seen = time.perf_counter(), 0
    for batch, _ in islice(loader, 8 * repeats):
        seen += int(batch.lengths.sum())
    rate = seen / (time.perf_counter() - start)
    rates = {
        "transformers": collated / seconds["transformers"],
        "litebert": float(np.mean(made)) / seconds["litebert"],
    }
    return {
        "bench": "batches",
        "length": length,
        "batch": size,
        "workers": workers,
        "cpus": os.cpu_count(),
        "peer": f"transformers {version}",
        "transformers_pieces_per_second_and_core": rates["transformers"],
        "litebert_pieces_per_second_and_core": rates["litebert"],
        "ratio": rates["litebert"] / rates["transformers"],
        "loader_pieces_per_second": rate,
    }


def _collator(folder: Path, batch: Batch, examples: Examples) -> tuple[Callable[[], Any], int, str]:
    """The peer's work, how many pieces it takes at a time, and its version."""
    library = transformers()
    import torch

    torch.set_num_threads(1)
    tokenizer = library.AutoTokenizer.from_pretrained(folder / "tokenizer")
    collator = library.DataCollatorForLanguageModeling(tokenizer, whole_word_mask=True, return_tensors="pt")
    ours = Tokenizer.load(folder / "tokenizer")
    ids = batch.input_ids.copy()
    ids.ravel()[batch.positions] = batch.labels
    rows = []
    for row, count in zip(ids, batch.lengths.tolist(), strict=True):
        pieces = row[:count]
        special = examples.vocabulary.special[pieces]
        gaps = np.cumsum(ours.word_start_table[pieces])  # a word begins where an offset does not touch the last one
        starts = np.arange(count) + gaps
        rows.append(
            {
                "input_ids": pieces.tolist(),
                "special_tokens_mask": special.astype(int).tolist(),
                "offset_mapping": np.stack([starts, starts + 1], axis=1).tolist(),
            }
        )
    whole = [row for row in rows if len(row["input_ids"]) == ids.shape[1]]  # it cannot pad offsets, so full ones only
    repeated = (whole * len(rows))[: len(rows)]
    return lambda: collator(repeated), len(repeated) * ids.shape[1], str(library.__version__)
