"""Texts -> one vector each from a frozen encoder, in their order; a file of texts -> a file of vectors.

This is the feature-based use of section 5.3 of the BERT paper. A chunk of rows is all that is held at a time.

>>> vectors = load("somewhere/albert-base-v2").embed(["One text.", "Another."])       # doctest: +SKIP
>>> vectors.shape                                                                      # doctest: +SKIP
(2, 768)
"""

import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from litebert.config import Reading, UserError
from litebert.infer.batch import Batch, batches, states_of, to_batch
from litebert.infer.fill import Filler
from litebert.infer.predict import PIECES
from litebert.infer.quick import place
from litebert.infer.texts import examples_of
from litebert.model.heads import Network
from litebert.model.packing import first_piece
from litebert.tasks.example import Example, Task
from litebert.tasks.features import units
from litebert.tasks.frame import Frame
from litebert.tasks.own import read_texts
from litebert.text.tokenizer import Tokenizer

CHUNK = 4096  # rows that are read, encoded and written together
LONGEST = 512  # pieces of a text, where the model takes as many and nobody says
ALONE = Task(kind="regress")  # what texts are read for when nothing is asked of them

Pool = Literal["mean", "first", "pooler"]
POOLS = ("mean", "first", "pooler")
Vectors = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Embedder:
    """An encoder, and how a text becomes a vector of it."""

    network: Network
    tokenizer: Tokenizer
    reading: Reading
    pool: Pool
    layers: tuple[int, ...]  # 0: what goes into the first layer
    summed: bool  # or side by side
    passes: int | None
    normalise: bool
    device: torch.device
    specials: Tensor  # pieces that stand for no text

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return self.network.config.hidden_size * (1 if self.summed else len(self.layers))


@dataclass(frozen=True)
class Chunk:
    """Some rows in a row."""

    keys: list[str]
    vectors: Vectors  # (rows, width)
    cut: int  # texts that were longer than what is read


@dataclass(frozen=True)
class Written:
    """What a file of vectors holds."""

    rows: int
    width: int
    cut: int


def embedder(
    model: Filler,
    pool: Pool = "mean",
    layers: str = "last",
    *,
    length: int | None = None,
    passes: int | None = None,
    normalise: bool = False,
    device: torch.device | str | None = None,  # None: where the model is
) -> Embedder:
    """A model ready to embed; what it cannot do is said here, before anything is read."""
    network, tokenizer = model.network, model.tokenizer
    if tokenizer is None:
        raise UserError("this model has no tokenizer beside it; put spiece.model, vocab.txt or tokenizer.json there")
    if pool not in POOLS:
        raise UserError(f"pool = {pool!r}; allowed: {', '.join(POOLS)}")
    most = network.config.positions
    if length is not None and length > most:
        raise UserError(f"length = {length} does not fit the model's {most} positions; give at most {most}")
    depth = len(network.encoder.trunk.walk(passes))
    chosen, summed = pick_layers(layers, depth)
    if pool == "pooler" and network.encoder.pooler is None:
        raise UserError("pool = 'pooler', and this model has no pooler; use mean or first")
    if pool == "pooler" and chosen != (depth,):
        raise UserError(f"pool = 'pooler' reads the last layer only, not layers = {layers!r}; use mean or first")
    where = torch.device(device) if device is not None else network.encoder.embeddings.words.weight.device
    place(network, where, torch.float32)
    return Embedder(
        network=network,
        tokenizer=tokenizer,
        reading=Reading(length=min(LONGEST, most) if length is None else length),
        pool=pool,
        layers=chosen,
        summed=summed,
        passes=passes,
        normalise=normalise,
        device=where,
        specials=torch.tensor(sorted(tokenizer.special_ids - {tokenizer.roles["unk"]}), device=where),
    )


def pick_layers(said: str, depth: int) -> tuple[tuple[int, ...], bool]:
    """Which hidden states, and whether they are summed instead of put side by side.

    >>> pick_layers("last", 12), pick_layers("concat4", 12)
    (((12,), False), ((9, 10, 11, 12), False))
    >>> pick_layers("1,6,-1", 12), pick_layers("all-sum", 3)
    (((1, 6, 12), False), ((1, 2, 3), True))
    """
    named = re.fullmatch(r"(concat|sum)(\d+)", said)
    if said in ("last", "all-sum"):
        return ((depth,), False) if said == "last" else (tuple(range(1, depth + 1)), True)
    if named and 1 <= int(named[2]) <= depth:
        return tuple(range(depth + 1 - int(named[2]), depth + 1)), named[1] == "sum"
    if re.fullmatch(r"-?\d+(,-?\d+)*", said):
        numbers = [int(part) for part in said.split(",")]
        if all(-depth - 1 <= number <= depth for number in numbers):
            return tuple(number % (depth + 1) for number in numbers), False
    raise UserError(
        f"layers = {said!r} of a model with {depth} layers; allowed: last, concatN and sumN (of the last N), all-sum, "
        f"or numbers from 0 (what goes into the first layer) to {depth} such as 0,{depth}"
    )


def embed(how: Embedder, texts: Sequence[str | tuple[str, str]]) -> Vectors:
    """One vector a text or pair of texts."""
    parts = [chunk.vectors for chunk in embed_examples(how, examples_of(texts))]
    return np.concatenate([np.zeros((0, how.width), np.float32), *parts])


def embed_examples(how: Embedder, examples: Iterable[Example]) -> Iterator[Chunk]:
    """Chunk after chunk, so any number of examples takes the same memory."""
    source = iter(examples)
    while some := list(islice(source, CHUNK)):
        yield _chunk(how, some)


@torch.no_grad()
def _chunk(how: Embedder, examples: Sequence[Example]) -> Chunk:
    frame = Frame(how.tokenizer)
    made = list(units(how.tokenizer, ALONE, [replace(each, target=None) for each in examples], how.reading))
    for unit, example in zip(made, examples, strict=True):
        if unit.pieces == frame.specials(len(example.texts)):
            raise UserError(f"{example.where}: no piece is left of the text {example.texts[0][:40]!r}; leave it out")
    vectors = np.empty((len(examples), how.width), np.float32)
    for numbers in batches(made, PIECES.get(how.device.type, 1 << 12)):
        batch = to_batch([made[number] for number in numbers], ALONE, how.device)
        vectors[numbers] = _vectors(how, batch).float().cpu().numpy()
    return Chunk([each.key for each in examples], vectors, sum(unit.lost > 0 for unit in made))


def _vectors(how: Embedder, batch: Batch) -> Tensor:
    """Of each unit of a batch, in the units' order."""
    parts = [_pooled(how, states, batch) for states in _states(how, batch)]  # (N, H) each
    found = torch.stack(parts).sum(0) if how.summed else torch.cat(parts, -1)  # (N, width)
    if how.normalise:
        found = torch.nn.functional.normalize(found, dim=-1)
    return torch.empty_like(found).index_copy(0, batch.unit, found)


def _states(how: Embedder, batch: Batch) -> list[Tensor]:
    """The chosen hidden states. The last alone is had without keeping those below it."""
    encoder = how.network.encoder
    if how.layers == (len(encoder.trunk.walk(how.passes)),):
        return [states_of(how.network, batch, how.passes)]
    types = batch.token_type_ids if how.network.config.token_types > 1 else None
    states = encoder.hidden_states(
        batch.input_ids, token_type_ids=types, boundaries=batch.boundaries, passes=how.passes
    )
    return [states[layer] for layer in how.layers]


def _pooled(how: Embedder, states: Tensor, batch: Batch) -> Tensor:
    if how.pool == "pooler":
        return how.network.encoder.pool(states, batch.boundaries)[: batch.rows]
    if how.pool == "first":
        return first_piece(states, batch.boundaries)[: batch.rows]
    text = torch.isin(batch.input_ids, how.specials, invert=True).to(states.dtype)  # (T,) 1 where a piece is text
    return batch.wide(states * text[:, None], 0.0).sum(1) / batch.wide(text, 0.0).sum(1)[:, None]


def embed_file(
    how: Embedder,
    source: str | Path,
    to: str | Path,
    columns: Sequence[str] = (),
    tell: Callable[[int, int], None] = lambda rows, cut: None,
    taught: Sequence[str] = (),
) -> Written:
    """A file of texts to a file of vectors, which appears when it is whole. `tell` hears of the rows and the cuts;
    `taught`: the columns that the model learned from, read where the file has them and no others are said."""
    target, rows, cut = Path(to), 0, 0
    write = writer(target)
    if Path(source).resolve() == target.resolve():
        raise UserError(f"{target} is the file that is read; give the vectors another name by --to")

    def counted() -> Iterator[Chunk]:
        nonlocal rows, cut
        for chunk in embed_examples(how, read_texts(source, columns, taught)):
            rows, cut = rows + len(chunk.keys), cut + chunk.cut
            yield chunk
            tell(rows, cut)

    with _whole(target) as file:
        write(file, counted(), how.width)
        if not rows:
            raise UserError(f"{source} holds no text")
    return Written(rows, how.width, cut)


Writer = Callable[[IO[bytes], Iterable[Chunk], int], None]


def writer(to: Path) -> Writer:
    """What writes a file of this name; a name that nothing writes, or a package that is missing, is one line."""
    known: dict[str, Writer] = {".parquet": _parquet, ".npy": _npy, ".npz": _npz}
    if to.suffix not in known:
        raise UserError(f"{to} is of no kind that vectors are written as: {', '.join(known)}")
    if to.is_dir():
        raise UserError(f"{to} is a folder; give the name of a file")
    if to.suffix == ".parquet":
        _arrow()
    return known[to.suffix]


@contextmanager
def _whole(to: Path) -> Iterator[IO[bytes]]:
    """The file appears in one moment: a killed process leaves what was there before."""
    partial = to.with_name(f".{to.name}.partial")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(partial, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, to)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as problem:
        raise UserError(f"cannot write {to}: {problem.strerror or problem}") from None


def _npy(file: IO[bytes], chunks: Iterable[Chunk], width: int) -> None:
    """The header is written again at the end, when the rows are counted: NumPy leaves it room for any number."""
    rows = 0
    _header(file, "<f4", (0, width))
    begin = file.tell()
    for chunk in chunks:
        file.write(chunk.vectors.astype("<f4", copy=False).tobytes())
        rows += len(chunk.keys)
    file.seek(0)
    _header(file, "<f4", (rows, width))
    assert file.tell() == begin, "NumPy's header keeps its length"
    file.seek(0, os.SEEK_END)


def _header(file: Any, kind: str, shape: tuple[int, ...]) -> None:
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})


def _npz(file: IO[bytes], chunks: Iterable[Chunk], width: int) -> None:
    """`vectors` and `ids`, as `np.savez` would write them. They wait on the disk until their sizes are known."""
    folder = Path(file.name).parent
    with TemporaryFile(dir=folder) as numbers, TemporaryFile("w+", dir=folder, encoding="utf-8") as names:
        rows, longest = 0, 1

        def noted() -> Iterator[Chunk]:
            nonlocal rows, longest
            for chunk in chunks:
                names.writelines(json.dumps(key) + "\n" for key in chunk.keys)
                rows, longest = rows + len(chunk.keys), max(longest, *map(len, chunk.keys))
                yield chunk

        _npy(numbers, noted(), width)
        numbers.seek(0)
        names.seek(0)
        with zipfile.ZipFile(file, "w") as packed:
            with packed.open("vectors.npy", "w", force_zip64=True) as member:
                shutil.copyfileobj(numbers, member, 1 << 20)
            with packed.open("ids.npy", "w", force_zip64=True) as member:
                _header(member, f"<U{longest}", (rows,))
                for line in names:
                    member.write(np.array([json.loads(line)], dtype=f"<U{longest}").tobytes())


def _parquet(file: IO[bytes], chunks: Iterable[Chunk], width: int) -> None:
    """Columns `id` and `vector`, a row group a chunk."""
    arrow, parquet = _arrow()
    schema = arrow.schema([("id", arrow.string()), ("vector", arrow.list_(arrow.float32(), width))])
    with parquet.ParquetWriter(file, schema) as out:
        for chunk in chunks:
            vectors = arrow.FixedSizeListArray.from_arrays(arrow.array(chunk.vectors.ravel()), width)
            out.write_table(arrow.table([arrow.array(chunk.keys, arrow.string()), vectors], schema=schema))


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UserError(
            "a .parquet file needs pyarrow; install it with: pip install 'litebert[corpus]', or write .npy"
        ) from None
    return pyarrow, pyarrow.parquet
