"""`litebert bench corpus`: building shards beside the floor, `sentencepiece` alone on text split and normalised.

Ours starts from the compressed files and ends with checked shards on the disk. The floor gets the very sentences ours
makes, already split and normalised and in memory, and does nothing but `encode` with as many threads.
"""

import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from litebert.config import UserError
from litebert.corpus.build import BuildOptions, build
from litebert.corpus.encode import split_sentences
from litebert.corpus.engines import Local
from litebert.corpus.read import Bad, find_sources, read_documents
from litebert.text.tokenizer import Tokenizer
from litebert.text.unigram import UnigramPieces


def bench_corpus(
    inputs: Sequence[str], tokenizer: str | Path, workers: int = 2, say: Callable[[str], object] = lambda _: None
) -> dict[str, Any]:
    """Seconds of both, the ratio, and the largest resident memory of a process of ours."""
    pieces = Tokenizer.load(tokenizer)
    if not isinstance(pieces.pieces, UnigramPieces):
        raise UserError("bench corpus compares with sentencepiece; give a unigram tokenizer")
    with tempfile.TemporaryDirectory() as folder, _Watch() as watch:
        say("building")
        start = time.perf_counter()
        manifest = build(list(inputs), pieces, Path(folder) / "shards", BuildOptions(), Local(workers))
        taken = time.perf_counter() - start
    say("splitting for the floor")
    normalise = pieces.pieces.normalise
    sentences = [
        normalise(sentence)
        for text in read_documents(find_sources(list(inputs)), "text", Bad())
        for sentence in split_sentences(text, "en")
    ]
    say("the floor")
    start = time.perf_counter()
    pieces.pieces.model.encode(sentences, out_type=int, num_threads=workers)
    floor = time.perf_counter() - start
    return {
        "bench": "corpus",
        "workers": workers,
        "characters": manifest["counts"]["characters"],
        "sentences": manifest["counts"]["sentences"],
        "pieces": manifest["counts"]["pieces"],
        "litebert_seconds": taken,
        "sentencepiece_seconds": floor,
        "ratio": taken / floor,
        "peak_resident_bytes_of_a_process": watch.peak,
    }


class _Watch:
    """The largest resident memory of a worker, or of this process where it is the only one, read as it goes."""

    def __enter__(self) -> "_Watch":
        self.peak = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def _look(self) -> None:
        while not self.over.wait(0.05):
            for pid in [child.pid for child in multiprocessing.active_children()] or [os.getpid()]:
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                for line in status.splitlines():
                    if line.startswith("VmHWM:"):
                        self.peak = max(self.peak, int(line.split()[1]) * 1024)
