"""Several fine-tuning runs that differ by their seed alone -> median, best and spread, as the papers report them."""

import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from litebert.files import copy_folder, replace_file
from litebert.recipe import TuneRecipe
from litebert.train.finetune import finetune
from litebert.train.processes import Processes
from litebert.train.run import MODEL
from litebert.train.session import Say
from litebert.train.stopping import Stopped, signal_of, signals


def finetune_seeds(
    recipe: TuneRecipe, folder: Path, seeds: int, resume: bool, processes: Processes, say: Say
) -> dict[str, Any]:
    """One run after the other; the best one's model is the directory's."""
    lines: list[dict[str, Any]] = []
    with signals() as asked:
        for number in range(seeds):
            stop = signal_of(asked, processes.total(len(asked))[0])
            if stop:  # when one had made its last step
                processes.wait()
                raise Stopped(lines[-1]["step"] if lines else 0, stop)
            seed = recipe.tune.seed + number
            inside = folder / f"seed-{seed}"
            say({"kind": "note", "text": f"seed {seed}, {number + 1} of {seeds}"})
            again, mine = (
                resume and processes.share(inside.exists()),
                replace(recipe, tune=replace(recipe.tune, seed=seed)),
            )
            lines.append(finetune(mine, inside, again, processes, say) | {"seed": seed})
    names = [score["name"] for score in lines[0]["scores"]]
    table = {name: [line["scores"][at]["value"] for line in lines] for at, name in enumerate(names)}
    best = max(range(seeds), key=lambda at: table[names[0]][at])
    summary = {
        name: {
            "median": statistics.median(values),
            "best": max(values),
            "least": min(values),
            "spread": statistics.stdev(values) if seeds > 1 else 0.0,
            "error": statistics.median(line["scores"][at]["error"] for line in lines),
        }
        for at, (name, values) in enumerate(table.items())
    }
    ran = {"kind": "seeds", "seeds": [line["seed"] for line in lines], "best_seed": lines[best]["seed"]}
    if processes.lead:
        copy_folder(folder / f"seed-{lines[best]['seed']}" / MODEL, folder / MODEL)
        replace_file(folder / "seeds.json", (json.dumps(ran | {"scores": summary}, indent=1) + "\n").encode())
    return ran | {"scores": summary}
