"""A tiny model with a tokenizer, and small files of every kind of task that it can learn in a few seconds."""

import csv
import json
import random
from pathlib import Path

import torch

from litebert.config import ModelConfig
from litebert.infer.model import Model
from litebert.model.weights import build
from litebert.text.tokenizer import Tokenizer
from litebert.train.processes import Processes
from tests.conftest import FAMILIES

ALONE = Processes(torch.device("cpu"))
GOOD, BAD = ("fine", "lovely", "great"), ("awful", "poor", "dreadful")
PLACES, PEOPLE = ("london", "paris", "rome"), ("ann", "bob", "eve")
WORDS = (*GOOD, *BAD, *PLACES, *PEOPLE, "the", "film", "was", "in", "by", "red", "blue", "green", "up", "who", "wrote",
         "it", "a", "book", "and", "of", "to", "went", "see", "##s", ".", ",", "?")  # fmt: skip


def toy_model(folder: Path, family: str = "bert", positions: int = 64, layers: int = 2, seed: int = 0) -> Path:
    """A folder with fresh weights and a WordPiece vocabulary of WORDS."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join([*specials, *WORDS]) + "\n")
    tokenizer = Tokenizer.load(folder / "vocab.txt")
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 32, "ffn_size": 64, "layers": layers, "heads": 4}
    config = ModelConfig(**{**sizes, **FAMILIES[family], "positions": positions, "init_std": 0.2, "pad_id": 0})
    Model(network=build(config, (), seed), tokenizer=tokenizer).save(folder)
    return folder


def write_rows(path: Path, rows: list[dict]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)
    return path


def classes(count: int, seed: int = 0) -> list[dict]:
    rng, rows = random.Random(seed), []
    for _ in range(count):
        label = rng.choice(["bad", "good"])
        word = rng.choice(GOOD if label == "good" else BAD)
        rows.append({"review": f"the {rng.choice(['film', 'book'])} was {word} .", "stars": label})
    return rows


def several(count: int, seed: int = 0) -> list[dict]:
    rng, rows = random.Random(seed), []
    for _ in range(count):
        colours = [colour for colour in ("red", "blue", "green") if rng.random() < 0.5]
        words = ["the", "book", "was", *colours]
        rng.shuffle(words)
        rows.append({"text": " ".join(words), "labels": colours})
    return rows


def numbers(count: int, seed: int = 0) -> list[dict]:
    rng, rows = random.Random(seed), []
    for _ in range(count):
        ups = rng.randint(0, 4)
        words = ["up"] * ups + ["the"] * (4 - ups)
        rng.shuffle(words)
        rows.append({"text": " ".join(words), "label": ups + 0.5})
    return rows


def tags(count: int, seed: int = 0) -> list[dict]:
    rng, rows = random.Random(seed), []
    for _ in range(count):
        words = [rng.choice(PEOPLE), "went", "to", rng.choice(PLACES), "."]
        rows.append({"tokens": words, "tags": ["B-PER", "O", "O", "B-LOC", "O"]})
        if rng.random() < 0.5:
            rows[-1] = {"tokens": ["the", "film", "in", words[3]], "tags": ["O", "O", "O", "B-LOC"]}
    return rows


def questions(count: int, seed: int = 0, unanswerable: float = 0.0) -> list[dict]:
    rng, rows = random.Random(seed), []
    for _ in range(count):
        name = rng.choice(PEOPLE)
        around = [rng.choice(["the", "book", "was", "in", "a"]) for _ in range(rng.randint(2, 6))]
        if rng.random() < unanswerable:
            rows.append({"question": "who wrote it ?", "context": " ".join([*around, "fine"]), "answers": []})
            continue
        at = rng.randint(0, len(around))
        words = [*around[:at], name, *around[at:]]
        rows.append({"question": "who wrote it ?", "context": " ".join(words), "answers": [{"text": name}]})
    return rows


def choices(count: int, seed: int = 0) -> list[dict]:
    rng, rows = random.Random(seed), []
    for _ in range(count):
        options = [rng.choice(BAD) for _ in range(3)]
        right = rng.randrange(3)
        options[right] = rng.choice(GOOD)
        rows.append({"text": "the film was in london .", "options": options, "label": right})
    return rows


KINDS = {  # kind: rows, the file's ending, options of the command, score to reach
    "classify": (classes, ".csv", ("--text", "review", "--label", "stars"), 0.95),
    "several": (several, ".jsonl", (), 0.9),
    "regress": (numbers, ".tsv", (), 0.9),
    "tag": (tags, ".jsonl", (), 0.9),
    "answer": (questions, ".jsonl", (), 0.8),
    "choice": (choices, ".jsonl", (), 0.9),
}
