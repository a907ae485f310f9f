"""Models and labelled examples -> `Depths`: the score and the time at each of several numbers of passes."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from litebert.infer.predict import Asked, listen
from litebert.infer.settle import Settle
from litebert.report.evaluation import how_to_decide, notes_on, parts, tuned
from litebert.tasks.answers import Answers, Said, decide, scores
from litebert.tasks.example import Example, Task
from litebert.tasks.metrics import Score


@dataclass(frozen=True)
class Depth:
    """What a number of passes gives and costs."""

    passes: int
    scores: tuple[Score, ...]
    seconds: float  # of 1,000 examples
    taken: float  # passes of an example on average: fewer where answers settle


@dataclass(frozen=True)
class Depths:
    """A model at several depths, measured in one run."""

    task: Task
    examples: int
    cut: int  # examples of which a model did not see everything
    settle: Settle | None
    depths: tuple[Depth, ...]
    notes: tuple[str, ...]


def at_depths(
    models: Sequence[Asked],
    examples: Sequence[Example],
    passes: Sequence[int],
    task: Task | None = None,
    tune_threshold: bool = False,
    say: Callable[[int], object] = lambda done: None,
) -> Depths:
    """The depths take turns, a part of the examples at a time, so that a noisy machine is noisy for all; each part goes
    once through the fewest passes before its time counts, so that none pays for shapes that were not met before."""
    task = task or models[0].task
    deciding = how_to_decide(models, task, tune_threshold)
    deep = {number: [replace(model, passes=number) for model in models] for number in sorted(set(passes))}
    saids: dict[int, list[Said]] = {number: [] for number in deep}
    taken: dict[int, list[int]] = {number: [] for number in deep}
    seconds, done, cut = dict.fromkeys(deep, 0.0), 0, 0
    for turn, some in enumerate(parts(models, examples)):
        cut += sum(lost > 0 for _, _, lost in listen(deep[min(deep)], some))
        for number in list(deep) if turn % 2 == 0 else reversed(deep):
            start = time.perf_counter()
            heard = [said for _, said, _ in listen(deep[number], some, taken[number].append)]
            seconds[number] += time.perf_counter() - start
            saids[number] += map(_deciding_part, heard)
        done += len(some)
        say(done)
    found = []
    for number in deep:
        here = tuned(deciding, examples, saids[number]) if tune_threshold else deciding
        made = scores(task, examples, [decide(here, said) for said in saids[number]])
        mean = sum(taken[number]) / len(taken[number])
        found.append(Depth(number, tuple(made), 1000 * seconds[number] / len(examples), mean))
    notes = [*notes_on(models, task, deciding, examples, cut)]
    if tune_threshold:
        notes.append(
            "the threshold for no answer was chosen at each depth on these very questions: expect a little less"
        )
    return Depths(task, len(examples), cut, models[0].settle, tuple(found), tuple(notes))


def _deciding_part(said: Said) -> Said:
    """Of the answers thought of, the best: the others would only wait in memory."""
    return (
        replace(said, texts=said.texts[:1], probabilities=said.probabilities[:1]) if isinstance(said, Answers) else said
    )


def as_table(found: Depths, models: Sequence[Asked], names: Sequence[str], data: str, command: str) -> dict[str, Any]:
    """Everything as plain values."""
    device = models[0].device
    return {
        "command": command,
        "models": list(names),
        "data": data,
        "task": found.task.as_table(),
        "counts": {"examples": found.examples, "cut": found.cut},
        "settle": None if found.settle is None else asdict(found.settle),
        "machine": {
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "cpus": os.cpu_count(),
        },
        "depths": [
            {
                "passes": each.passes,
                "scores": [asdict(one) for one in each.scores],
                "seconds_per_1000_examples": each.seconds,
                "passes_taken": each.taken,
            }
            for each in found.depths
        ],
        "notes": list(found.notes),
    }
