"""`litebert bench serve`: texts a second over HTTP from many connections beside the same model called directly.

The model is called on batches of several sizes first, texts of like length together, and the quickest size is its best;
then that and the server take turns, and what is served is held against the two direct runs around it, since a shared
machine is faster and slower by the minute. The server runs in a process of its own with its usual settings, and each
connection sends its next text when it has the answer to the last. Each side has all the cores while it is its turn.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from litebert.bench.server import Address, post, read_reply, server
from litebert.bench.timing import machine
from litebert.config import PRESETS, HeadConfig, Reading, UserError
from litebert.corpus.read import Bad, find_sources, read_documents
from litebert.infer.batch import SENTENCE
from litebert.infer.model import Model, load
from litebert.model.weights import build
from litebert.tasks.example import Task
from litebert.tasks.taught import Taught
from litebert.text.tokenizer import Tokenizer
from litebert.text.train import TrainSettings, train_tokenizer

SHORTEST, LONGEST = 8, 128  # pieces of a text
SIZES = (8, 32, 128)  # of the batches that are tried directly
Say = Callable[[str], object]


def bench_serve(
    name: str = "albert-base",
    connections: int = 64,
    count: int = 256,
    rounds: int = 5,
    seed: int = 0,
    precision: str | None = None,
    words: Sequence[str] = (),  # for `litebert serve`
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Both rates, their ratio, the latencies of the server's answers and the share of errors."""
    documents = books()
    with served_folder(name, documents, seed, say) as folder:
        model = load(folder, precision=precision)
        words = [*words, *(["--precision", precision] if precision else [])]
        texts = sample(model, documents, count, seed)
        say("directly, batches of several sizes")
        rates = {size: direct(model, texts, size) for size in SIZES if size <= max(SIZES[0], count)}
        best = max(rates, key=lambda size: rates[size])
        with server([f"bench={folder}", *words]) as address:
            asyncio.run(drive(address, texts[: 2 * connections], connections))  # warm-up
            offline, served, took, errors = [direct(model, texts, best)], [], [], 0
            for turn in range(rounds):
                say(f"round {turn + 1} of {rounds}")
                start = time.perf_counter()
                statuses, seconds = asyncio.run(drive(address, texts, connections))
                served.append(len(texts) / (time.perf_counter() - start))
                offline.append(direct(model, texts, best))
                took += seconds
                errors += sum(status != 200 for status in statuses)
    ratios = [2 * each / (before + after) for before, each, after in zip(offline, served, offline[1:], strict=False)]
    return {
        "bench": "serve",
        "model": name,
        "precision": precision,
        "connections": connections,
        "texts": count,
        "rounds": rounds,
        "best_batch": best,
        "by_batch": {str(size): rate for size, rate in rates.items()},
        "direct_texts_per_second": statistics.median(offline),
        "served_texts_per_second": statistics.median(served),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "p50_ms": 1000 * float(np.quantile(took, 0.5)),
        "p99_ms": 1000 * float(np.quantile(took, 0.99)),
        "error_rate": errors / (rounds * len(texts)),
    } | machine()


def books() -> list[str]:
    with resources.as_file(resources.files("litebert") / "data" / "books.txt.xz") as path:
        return list(read_documents(find_sources([path]), "text", Bad()))


@contextmanager
def served_folder(name: str, documents: Sequence[str], seed: int, say: Say) -> Iterator[Path]:
    """The model's folder; of a preset, one with fresh weights, a classify head and the shipped novels' tokenizer."""
    if name not in PRESETS:
        yield Path(name)
        return
    with tempfile.TemporaryDirectory() as folder:
        say(f"{name} with fresh weights")
        config = PRESETS[name]
        tokenizer, _ = train_tokenizer(iter(documents), TrainSettings(vocab_size=min(4000, config.vocab_size)))
        labels = ("no", "yes")
        network = build(config, [HeadConfig(kind="classify", labels=labels)], seed)
        taught = Taught(Task(kind="classify", labels=labels), Reading(length=min(LONGEST, config.positions)))
        Model(network=network, tokenizer=tokenizer, taught=taught).save(folder)
        yield Path(folder)


def sample(model: Model, documents: Sequence[str], count: int, seed: int) -> list[str]:
    """Texts of 8 to 128 pieces, specials included, in no order."""
    if model.tokenizer is None or model.taught is None or model.taught.task.kind not in SENTENCE:
        raise UserError("this bench asks for classes; give a model that was taught some, or a preset")
    rng, texts = np.random.default_rng(seed), []
    for size in rng.integers(SHORTEST, LONGEST + 1, count).tolist():
        document = documents[int(rng.integers(len(documents)))]
        start = document.find(" ", int(rng.integers(max(1, len(document) - 8 * LONGEST)))) + 1
        texts.append(cut(model.tokenizer, document[start : start + 8 * LONGEST], size))
    return texts


def cut(tokenizer: Tokenizer, text: str, pieces: int) -> str:
    """The beginning of a text that has so many pieces with its specials."""
    found = tokenizer.encode(text, max_length=pieces)
    return text[: max(end for _, end in found.offsets)]


def direct(model: Model, texts: Sequence[str], size: int) -> float:
    """Texts a second without a server; the first batch is not timed."""
    order = sorted(texts, key=len)
    model.classify(order[:size])
    start = time.perf_counter()
    for at in range(0, len(order), size):
        model.classify(order[at : at + size])
    return len(texts) / (time.perf_counter() - start)


async def drive(address: Address, texts: Sequence[str], connections: int) -> tuple[list[int], list[float]]:
    """Statuses (0: no answer) and seconds of every request."""
    left = iter([post("/v1/classify", {"texts": [text]}) for text in texts])
    statuses: list[int] = []
    seconds: list[float] = []

    async def client() -> None:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        for request in left:
            start = time.perf_counter()
            writer.write(request)
            try:
                status, _ = await read_reply(reader)
            except (OSError, asyncio.IncompleteReadError):
                statuses.append(0)
                reader, writer = await asyncio.open_connection(address.host, address.port)
                continue
            statuses.append(status)
            seconds.append(time.perf_counter() - start)
        writer.close()

    await asyncio.gather(*(client() for _ in range(connections)))
    return statuses, seconds
