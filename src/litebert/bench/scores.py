"""`litebert bench scores`: a pre-trained model on every task of a folder, beside others under the same settings.

The others are the same shape from random weights (what the pre-training was worth), any models you name, and what the
paper printed. Every score is of the dev set after the last step, never the best of several looks. Of several rates each
side has, on each task, the one whose median is best on that dev set, as the papers do; the row says which.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from litebert.ablate.once import taught
from litebert.ablate.tasks import NEVER, Trial, trial
from litebert.config import UserError
from litebert.files import read_json
from litebert.infer.model import Model, load
from litebert.model.weights import build
from litebert.recipe import TuneConfig, TuneRecipe
from litebert.report.info import papers

RANDOM = "random"  # the same shape without its training
NAMES = ("cola", "mrpc", "stsb", "rte", "wnli", "sst2", "qqp", "mnli", "squad", "race")
PAPER = {  # metric of ours: the paper's column, and which of its figures
    ("sst2", "accuracy"): ("SST-2", 0),
    ("mnli", "accuracy"): ("MNLI", 0),
    ("squad", "f1"): ("SQuAD1.1", 0),
    ("squad", "em"): ("SQuAD1.1", 1),
    ("race", "accuracy"): ("RACE", 0),
}


def trials(data: Path) -> dict[str, Trial]:
    """Every task whose training set is in the folder, or has a stand-in there."""
    return {name: trial(name, data) for name in NAMES}


def bench_scores(
    model: str,
    data: Path,
    to: Path,
    tune: TuneConfig,
    tasks: Sequence[str] = (),  # none: all of them
    beside: Sequence[str] = (),
    seeds: int = 0,  # 0: as the trial says
    paper: str = "",  # a row of the paper's table
    device: str = "auto",
    keep: bool = False,  # the fine-tuned models
    random: bool = True,  # beside the same shape from random weights
    rates: Sequence[float] = (),  # none: the one of `tune`
    say: Callable[[dict[str, Any]], object] = lambda _: None,
) -> dict[str, Any]:
    known = trials(data)
    unknown = [name for name in tasks if name not in known]
    if unknown:
        raise UserError(f"no task {unknown[0]!r}; the tasks: {', '.join(known)}")
    printed = paper_scores(paper) if paper else {}
    sides = {_short(name): name for name in (model, *beside)}
    if len(sides) <= len(beside) or RANDOM in sides:
        raise UserError(f"two models of one name among {', '.join((model, *beside, RANDOM))}")
    if random:
        sides[RANDOM] = str(random_model(model, to))
    rows: list[dict[str, Any]] = []
    ways = [replace(tune, rate=rate, evaluate_every=NEVER) for rate in rates or [tune.rate]]  # a bad one is found here
    for name in tasks or known:
        chosen = known[name]
        best: dict[str, tuple[float, dict[str, Any]]] = {}  # of each side its rate and scores
        for side, path in sides.items():
            for way in ways:
                recipe = TuneRecipe(model=path, task=chosen.task, tune=replace(way, epochs=chosen.epochs))
                cell = cell_of(to, f"{side}-{name}", way.rate, len(ways) > 1)
                say({"kind": "note", "text": f"{name}, {side}, rate {way.rate:g}"})
                found = taught(recipe, to, cell, seeds or chosen.seeds, device, keep, say)["scores"]
                if side not in best or first_median(found) > first_median(best[side][1]):
                    best[side] = (way.rate, found)
        for metric in best[next(iter(best))][1]:
            row: dict[str, Any] = {"task": name, "metric": metric}
            row |= {side: found[metric] for side, (_, found) in best.items()}
            row |= {"rates": {side: rate for side, (rate, _) in best.items()}, "seeds": seeds or chosen.seeds}
            rows.append(row | {"paper": printed.get((name, metric))})
    return {"bench": "scores", "model": model, "sides": list(sides), "paper": paper, "rows": rows}


def first_median(scores: dict[str, dict[str, float]]) -> float:
    """Of the first metric: F1 where there is one."""
    return next(iter(scores.values()))["median"]


def cell_of(to: Path, name: str, rate: float, several: bool) -> str:
    """The name of a side's result on a task: with its rate where there are several, unless it is there without (or the
    other way round)."""
    alone, among = name, f"{name}-{rate:g}"
    if several:
        file = to / f"{alone}.json"
        return alone if file.exists() and read_json(file)["recipe"]["tune"]["rate"] == rate else among
    return among if (to / f"{among}.json").exists() else alone


def random_model(model: str, to: Path) -> Path:
    """A model of the same shape and tokenizer that nothing was taught."""
    folder, trained = to / RANDOM, load(model)
    if not (folder / "litebert.json").exists():
        network = build(trained.config, (), seed=0)
        to.mkdir(parents=True, exist_ok=True)
        Model(network=network, tokenizer=trained.tokenizer).save(folder)
    elif load(folder).config != trained.config:
        raise UserError(f"{to} has scores of a model of another shape than {model}; choose another folder")
    return folder


def paper_scores(model: str) -> dict[tuple[str, str], float]:
    """What the paper's table says of a model, by our names of task and metric."""
    table = papers()["albert"]["sizes"]
    rows = {row[0]: dict(zip(table["columns"], row, strict=True)) for row in table["rows"]}
    if model not in rows:
        raise UserError(f"the paper has no {model!r}; it has {', '.join(rows)}")
    return {ours: float(str(rows[model][column]).split("/")[at]) for ours, (column, at) in PAPER.items()}


def _short(name: str) -> str:
    return Path(name).name or name
