"""`litebert bench squad2`: questions without an answer, where SQuAD 2.0's training file is not at hand.

The articles of its dev file are split in three by a seed: one part teaches a model that was taught SQuAD 1.1 before,
one chooses the threshold, and one, which nothing has seen, is scored: with that threshold, with 0, and always
answering.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from litebert.config import UserError
from litebert.corpus.read import open_bytes
from litebert.files import replace_file
from litebert.infer.model import load
from litebert.infer.predict import asked, listen
from litebert.recipe import TaskConfig, TuneConfig, TuneRecipe
from litebert.tasks.answers import decide, scores
from litebert.tasks.squad import read_squad
from litebert.train.finetune import finetune
from litebert.train.processes import Processes, pick_device

PARTS = (20, 5, 10)  # articles to learn from, to choose the threshold by, to score
NAMES = ("train", "dev", "test")


def split_articles(file: Path, to: Path, parts: Sequence[int] = PARTS, seed: int = 0) -> list[int]:
    """Three files of SQuAD's layout; returns how many questions each holds."""
    list(read_squad(file))  # says in one line what is wrong with it
    articles = json.loads(open_bytes(file))["data"]
    if len(articles) < sum(parts):
        raise UserError(f"{file} holds {len(articles)} articles, and {' + '.join(map(str, parts))} are wanted")
    order = np.random.default_rng(seed).permutation(len(articles))[: sum(parts)]
    to.mkdir(parents=True, exist_ok=True)
    counts = []
    for name, rows in zip(NAMES, np.split(order, np.cumsum(parts)[:-1]), strict=True):
        some = [articles[row] for row in sorted(rows)]
        replace_file(to / f"{name}-v2.0.json", json.dumps({"version": "v2.0", "data": some}).encode())
        counts.append(sum(len(paragraph["qas"]) for article in some for paragraph in article["paragraphs"]))
    return counts


def bench_squad2(
    model: str,
    file: Path,
    to: Path,
    tune: TuneConfig,
    parts: Sequence[int] = PARTS,
    seed: int = 0,
    device: str = "auto",
    say: Callable[[dict[str, Any]], object] = lambda _: None,
) -> dict[str, Any]:
    counts = split_articles(file, to / "data", parts, seed)
    recipe = TuneRecipe(model=model, task=TaskConfig(name="squad2", data=str(to / "data")), tune=tune)
    run = to / "run"
    here = pick_device(device)
    finetune(recipe, run, (run / "recipe.toml").exists(), Processes(here), say)
    ready = asked(load(run), here)
    examples = list(read_squad(to / "data" / "test-v2.0.json"))
    saids = [said for _, said, _ in listen([ready], examples)]
    task = ready.task
    ways = {
        "threshold chosen on the second part": task,
        "threshold 0": replace(task, threshold=0.0),
        "always an answer": replace(task, unanswerable=False),
    }
    rows: list[dict[str, Any]] = []
    for name, way in ways.items():
        found = scores(way, examples, [decide(way, said) for said in saids])
        row: dict[str, Any] = {"way": name, "threshold": way.threshold if way.unanswerable else None}
        rows.append(row | {score.name: asdict(score) for score in found})
    return {"bench": "squad2", "model": model, "seed": seed, "articles": list(parts), "questions": counts, "rows": rows}
