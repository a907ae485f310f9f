"""The novels that ship with the package -> shards, for tables at `smoke`: a fresh clone needs nothing else."""

import lzma
from importlib import resources
from pathlib import Path

from litebert.corpus.build import BuildOptions, build
from litebert.corpus.engines import Local
from litebert.corpus.read import Bad, find_sources, read_documents
from litebert.corpus.shards import MANIFEST
from litebert.text.tokenizer import Tokenizer
from litebert.text.train import TrainSettings, train_tokenizer

PIECES = 1000
LESS = 0.5  # the share of the sections that stands for less text


def shipped_shards(folder: Path, less: bool = False) -> Path:
    """Made where they are not yet; `less`: half of the text, in the same pieces as the whole."""
    to = folder / ("shards-less" if less else "shards")
    if (to / MANIFEST).exists():
        return to
    with resources.as_file(resources.files("litebert") / "data" / "books.txt.xz") as books:
        if less:
            tokenizer = Tokenizer.load(shipped_shards(folder) / "tokenizer")
            source = folder / "less.txt"
            sections = lzma.decompress(books.read_bytes()).decode().split("\n\n")
            folder.mkdir(parents=True, exist_ok=True)
            source.write_text("\n\n".join(sections[:: round(1 / LESS)]), encoding="utf-8")
        else:
            texts = read_documents(find_sources([books]), "text", Bad())
            tokenizer, _ = train_tokenizer(texts, TrainSettings(vocab_size=PIECES))
            source = books
        build([source], tokenizer, to, BuildOptions(held_out=0.1), Local(1))
    return to
