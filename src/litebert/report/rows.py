"""Texts, or a file of ids where there is no tokenizer -> the rows of pieces that a model is looked at with."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from litebert.config import UserError
from litebert.files import first_line
from litebert.infer.look import Row, read_row
from litebert.infer.model import Model
from litebert.tasks.own import read_texts

RANDOM = "random"
ROWS, PIECES = 8, 64  # that are made up
FIRST = 5  # ids below are mostly specials


@dataclass(frozen=True)
class Given:
    """What to look with: texts for models that have a tokenizer, ids for the others; ids alone are for all."""

    texts: tuple[str, ...] = ()
    ids: str = ""  # a file, or RANDOM

    def is_ids(self, model: Model) -> bool:
        return not self.texts or model.tokenizer is None

    def source(self, model: Model) -> str:
        """Where a model's rows come from, in words."""
        return (
            ("random ids" if self.ids == RANDOM else f"ids of {Path(self.ids).name}") if self.is_ids(model) else "text"
        )


def given(texts: Sequence[str], file: Path | None, ids: str) -> Given:
    """The texts that were said and those of a file."""
    found = list(texts)
    if file is not None:
        found += [" ".join(each.texts) for each in read_texts(file)]
    if not found and not ids:
        raise UserError("say what to read: --text TEXT, --texts FILE, or --ids FILE where a model has no tokenizer")
    empty = next((number for number, text in enumerate(found, 1) if not text.strip()), None)
    if empty is not None:
        raise UserError(f"text {empty} is empty; leave it out")
    return Given(tuple(found), ids)


def rows_of(name: str, model: Model, what: Given, most: int = 1 << 30) -> list[Row]:
    """The rows that a model reads, each cut to what it takes, or to `most` pieces."""
    most = min(most, model.config.positions)
    if not what.is_ids(model):
        return [read_row(model, text, most) for text in what.texts]
    if not what.ids:
        raise UserError(f"{name} has no tokenizer beside it; give it pieces by --ids FILE, or --ids {RANDOM}")
    known = model.config.vocab_size
    if what.ids == RANDOM:
        rng, first = random.Random(0), min(FIRST, known - 1)
        found = [[rng.randrange(first, known) for _ in range(min(PIECES, most))] for _ in range(ROWS)]
    else:
        found = read_ids(Path(what.ids))
    wrong = next((index for row in found for index in row if not 0 <= index < known), None)
    if wrong is not None:
        raise UserError(f"{what.ids} holds the id {wrong}, and {name} knows 0 to {known - 1}; give ids of its own")
    return [Row(row[:most], [0] * min(len(row), most), max(0, len(row) - most)) for row in found]


def check_same_pieces(models: dict[str, Model], what: Given) -> None:
    """The ids of a file mean one thing: models with other vocabularies cannot all read them."""
    if what.ids == RANDOM:
        return
    reading = {name: model.config.vocab_size for name, model in models.items() if what.is_ids(model)}
    if len(set(reading.values())) > 1:
        sizes = ", ".join(f"{name} {size:,}" for name, size in reading.items())
        raise UserError(
            f"the ids of {what.ids} mean other pieces to each of these models (pieces: {sizes}); "
            f"give --text, draw them apart, or take --ids {RANDOM}"
        )


def read_ids(path: Path) -> list[list[int]]:
    """A row, or rows, of ids: .npy, .npz with `input_ids` (and `attention_mask` where some are padding), or JSON."""
    if path.suffix not in (".npy", ".npz", ".json"):
        raise UserError(f"--ids {path}: give a .npy, .npz or .json file, or {RANDOM}")
    try:
        values, mask = _json(path) if path.suffix == ".json" else _arrays(path)
    except KeyError:
        raise UserError(f"{path} holds no input_ids") from None
    except (OSError, ValueError, EOFError, BadZipFile, RecursionError) as problem:
        raise UserError(f"cannot read {path}: {first_line(problem)}") from None
    rows, masks = (_as_rows(each) for each in (values, mask))
    if not rows or not all(isinstance(row, list) and row for row in rows):
        raise UserError(f"{path} holds no row of ids, or an empty one")
    if not all(type(index) is int for row in rows for index in row):
        raise UserError(f"{path} holds something else than whole numbers, or more than rows of them")
    if mask is None:
        return rows
    if len(masks) != len(rows):
        raise UserError(f"{path}: attention_mask has {len(masks)} rows, and input_ids {len(rows)}")
    return [_real(row, each, path) for row, each in zip(rows, masks, strict=True)]


def _as_rows(found: Any) -> list[Any]:
    """A single row is one of one."""
    if not isinstance(found, list):
        return []
    return [found] if found and not isinstance(found[0], list) else found


def _real(row: list[int], mask: Any, path: Path) -> list[int]:
    """The pieces before the padding."""
    good = isinstance(mask, list) and len(mask) == len(row) and all(each in (0, 1) for each in mask)
    count = int(sum(mask)) if good else 0
    if not count or not all(mask[:count]):
        raise UserError(f"{path}: an attention_mask is as long as its row, ones first and then zeros")
    return row[:count]


def _json(path: Path) -> tuple[Any, Any]:
    found = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(found, dict):
        return found["input_ids"], found.get("attention_mask")
    if not isinstance(found, list):
        raise ValueError("neither a list of ids nor an object with input_ids")
    return found, None


def _arrays(path: Path) -> tuple[Any, Any]:
    with open(path, "rb") as file:
        found = np.load(file, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found.tolist(), None
        mask = found["attention_mask"].tolist() if "attention_mask" in found else None
        return found["input_ids"].tolist(), mask
