"""`litebert bench tokenize`: megabytes a second of ours and its peers on the same texts, one core, and whose ids agree.

`sentencepiece` gets texts that are normalised already and leaves out the digit-comma rule: it is the floor that no
exact tokenizer over it can pass. `transformers` reads the tokenizer's own file, and the folder that we save.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from litebert.bench.timing import interleaved
from litebert.config import UserError
from litebert.text.tokenizer import Tokenizer
from litebert.text.unigram import UnigramPieces

Work = Callable[[], Any]


def bench_tokenize(
    tokenizer: str | Path,
    texts: Iterable[str],
    most: int = 10_000,
    repeats: int = 3,
    say: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """A row for each way: its rate, its time against the first way's, the share of texts with other ids than ours."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    ours = Tokenizer.load(tokenizer)
    sample = list(islice((line for text in texts for line in text.splitlines() if line.strip()), most))
    if not sample:
        raise UserError("no text to measure on; give a file with some")
    say(f"{len(sample):,} texts")
    with tempfile.TemporaryDirectory() as folder:
        work = _ways(ours, Path(tokenizer), sample, Path(folder))
        wanted = _rows(*ours.ids(sample))
        differ = {name: _differing(name, run, wanted) for name, run in work.items()}
        say("measuring")
        seconds = interleaved(work, repeats, warm_up=0)
    size = sum(len(text.encode()) for text in sample)
    floor = seconds.get("sentencepiece", seconds["litebert, ids"])
    rows = [
        {
            "way": name,
            "mb_per_second": size / 1e6 / taken,
            "time_against_first": taken / floor,
            "texts_with_other_ids": differ[name],
        }
        for name, taken in seconds.items()
    ]
    found: dict[str, Any] = {
        "texts": len(sample),
        "bytes": size,
        "kind": ours.kind,
        "cpus": os.cpu_count(),
        "rows": rows,
    }
    if ours.kind == "unigram" and not _has_protobuf():
        found["note"] = "transformers reads spiece.model only where protobuf is: pip install 'litebert[bench]'"
    return found


def _has_protobuf() -> bool:
    try:
        return find_spec("google.protobuf") is not None
    except ModuleNotFoundError:
        return False


def _ways(ours: Tokenizer, path: Path, sample: list[str], folder: Path) -> dict[str, Work]:
    """The floor first."""
    try:
        from transformers import AlbertTokenizer, AutoTokenizer, BertTokenizer, PreTrainedTokenizerFast
    except ImportError:
        raise UserError("the peer is missing; pip install 'litebert[bench]'") from None
    ways: dict[str, Work] = {}
    own: Any
    if isinstance(ours.pieces, UnigramPieces):
        pieces = ours.pieces
        normal = [pieces.normalise(text) for text in sample]
        ways["sentencepiece"] = lambda: pieces.model.encode(normal, out_type=int, num_threads=1)
        (folder / "bare").mkdir()
        (folder / "bare" / "spiece.model").write_bytes(pieces.file)
        own = AlbertTokenizer.from_pretrained(folder / "bare") if _has_protobuf() else None
    elif "vocab.txt" in ours.files:
        own = BertTokenizer(str(path / "vocab.txt" if path.is_dir() else path))
    else:
        own = PreTrainedTokenizerFast(tokenizer_file=str(path / "tokenizer.json" if path.is_dir() else path))
    ours.save(folder / "saved")
    saved = AutoTokenizer.from_pretrained(folder / "saved")
    ways["litebert, ids"] = lambda: ours.ids(sample)
    ways["litebert, offsets too"] = lambda: [ours.encode(text) for text in sample]
    if own is not None:
        ways["transformers, its own reading"] = lambda: own(sample, add_special_tokens=False)["input_ids"]
    ways["transformers, our folder"] = lambda: saved(sample, add_special_tokens=False)["input_ids"]
    return ways


def _rows(flat: Any, lengths: Any) -> list[list[int]]:
    return [row.tolist() for row in np.split(flat, np.cumsum(lengths)[:-1])]


def _differing(name: str, run: Work, wanted: Sequence[list[int]]) -> float:
    found = run()
    if name == "litebert, ids":
        found = _rows(*found)
    elif name == "litebert, offsets too":
        found = [[i for i, text in zip(row.input_ids, row.texts, strict=True) if text >= 0] for row in found]
    return sum(list(a) != b for a, b in zip(found, wanted, strict=True)) / len(wanted)
