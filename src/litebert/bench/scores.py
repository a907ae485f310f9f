"""`litebert bench scores`: a pre-trained model on every task of a folder, beside others under the same settings.

The others are the same shape from random weights (what the pre-training was worth), any models you name, and what the
paper printed. Every score is of the dev set after the last step, never the best of several looks.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from litebert.config import UserError
from litebert.files import replace_file
from litebert.infer.model import Model, load
from litebert.model.weights import build
from litebert.recipe import TaskConfig, TuneConfig, TuneRecipe
from litebert.report.info import papers
from litebert.train.finetune import finetune_seeds

RANDOM = "random"  # the same shape without its training
NEVER = 1 << 40  # steps between two looks: only the end is scored
PAPER = {  # metric of ours: the paper's column, and which of its figures
    ("sst2", "accuracy"): ("SST-2", 0),
    ("mnli", "accuracy"): ("MNLI", 0),
    ("squad", "f1"): ("SQuAD1.1", 0),
    ("squad", "em"): ("SQuAD1.1", 1),
    ("race", "accuracy"): ("RACE", 0),
}


@dataclass(frozen=True)
class Trial:
    """A task and how it is learned: the same for every model."""

    task: TaskConfig
    epochs: float
    seeds: int  # several where the set is small


def trials(data: Path) -> dict[str, Trial]:
    """MNLI's training set is large; LingNLI, written on its premises, stands for it where it is alone."""
    small, glue = ("cola", "mrpc", "stsb", "rte", "wnli"), str(data / "glue")
    found = {name: Trial(TaskConfig(name=name, data=glue), 5.0, 5) for name in small}
    found |= {name: Trial(TaskConfig(name=name, data=glue), 3.0, 1) for name in ("sst2", "qqp")}
    ling = TaskConfig(
        train=str(data / "glue" / "LingNLI" / "train.jsonl.xz"),
        dev=str(data / "glue" / "MNLI" / "val.jsonl"),
        texts=("premise", "hypothesis"),
        label=("label",),
    )
    found["mnli"] = Trial(ling, 3.0, 1)
    found["squad"] = Trial(TaskConfig(name="squad", data=str(data / "squad")), 2.0, 1)
    found["race"] = Trial(TaskConfig(name="race", data=str(data / "race")), 2.0, 1)
    return found


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
    sides[RANDOM] = str(random_model(model, to))
    rows: list[dict[str, Any]] = []
    for name in tasks or known:
        trial = known[name]
        cells = {}
        for side, path in sides.items():
            recipe = TuneRecipe(
                model=path,
                task=trial.task,
                tune=replace(tune, epochs=trial.epochs, evaluate_every=NEVER),
            )
            say({"kind": "note", "text": f"{name}, {side}"})
            cells[side] = cell(recipe, to, f"{side}-{name}", seeds or trial.seeds, device, keep, say)
        for metric in cells[next(iter(cells))]["scores"]:
            row: dict[str, Any] = {"task": name, "metric": metric}
            row |= {side: made["scores"][metric] for side, made in cells.items()}
            rows.append(row | {"seeds": seeds or trial.seeds, "paper": printed.get((name, metric))})
    return {"bench": "scores", "model": model, "sides": list(sides), "paper": paper, "rows": rows}


def cell(
    recipe: TuneRecipe,
    to: Path,
    name: str,
    seeds: int,
    device: str,
    keep: bool,
    say: Callable[[dict[str, Any]], object],
) -> dict[str, Any]:
    """One model on one task. What is finished is read, not made again."""
    file, run = to / f"{name}.json", to / "runs" / name
    asked = json.loads(json.dumps({"recipe": asdict(recipe), "seeds": seeds}))
    if file.exists():
        made: dict[str, Any] = json.loads(file.read_text())
        if {key: made.get(key) for key in asked} != asked:
            raise UserError(f"{file} was made with other settings; choose another folder, or remove it")
        return made
    found = finetune_seeds(recipe, run, seeds, run.exists(), device, say)
    replace_file(file, (json.dumps(asked | {"scores": found["scores"]}, indent=1) + "\n").encode())
    if not keep:
        shutil.rmtree(run)
    return {**asked, "scores": found["scores"]}


def random_model(model: str, to: Path) -> Path:
    """A model of the same shape and tokenizer that nothing was taught."""
    folder, taught = to / RANDOM, load(model)
    if not (folder / "litebert.json").exists():
        network = build(taught.config, (), seed=0)
        to.mkdir(parents=True, exist_ok=True)
        Model(network=network, tokenizer=taught.tokenizer).save(folder)
    elif load(folder).config != taught.config:
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
