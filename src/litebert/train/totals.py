"""Steps -> the figures of a log line. Sums stay on the device until a line is written: the loop never waits for it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from litebert.corpus.pack import Packed
from litebert.model.cost import training_flops
from litebert.model.packing import to_device
from litebert.recipe import Recipe
from litebert.train.objective import Term
from litebert.train.processes import Processes
from litebert.train.schedule import Stage
from litebert.train.steps import Done, Skips
from litebert.train.tally import SILENCE

COUNTS = ("masked", "examples", "pieces")  # of a batch


class Totals:
    """What has been counted since the last line, and a clock that runs only while steps are made."""

    def __init__(
        self, processes: Processes, saved: dict[str, Any] | None, peak: float, terms: Sequence[Term] = ()
    ) -> None:
        saved = saved or {}
        device = processes.device
        self.processes, self.peak, self.terms = processes, peak, terms
        # what is summed on the device: each process's own, to be added over them, and what is the same in all
        self.own = ("masked_loss", "masked_right", "pair_loss", "pair_right", *(term.name for term in terms), *COUNTS)
        self.same = ("norm", "taken")
        before = saved.get("sums", {})
        mine = [before.get(name, 0.0) if processes.lead else 0.0 for name in self.own]
        here = [*mine, *(before.get(name, 0.0) for name in self.same)]
        self.sums = torch.tensor(here, dtype=torch.float64, device=device)
        self.skips = Skips(device, saved.get("skips", [0.0] * 3))
        self.pieces: float = saved.get("pieces", 0.0) if processes.lead else 0.0  # since the run began
        self.seconds: float = saved.get("seconds", 0.0)  # of training, since the run began
        self.fresh = [0.0, 0.0, 0.0]  # pieces, FLOPs and steps since the last line
        self.since = self.seconds
        self.begun: float | None = None
        self.told = time.perf_counter()

    def resume(self) -> None:
        self.begun = time.perf_counter()

    def pause(self) -> None:
        """Stop the clock once the device has done all it was given."""
        if self.begun is not None:
            if self.processes.device.type == "cuda":
                torch.cuda.synchronize(self.processes.device)
            self.seconds += time.perf_counter() - self.begun
            self.begun = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.pause()
        yield
        self.resume()

    def add(self, done: Done, parts: Sequence[Packed], recipe: Recipe, passes: int) -> None:
        counted = [float(sum(getattr(part, name) for part in parts)) for name in COUNTS]
        here = to_device(torch.tensor([*counted, 1.0], dtype=torch.float64), self.sums.device)
        row = torch.cat([done.figures.double(), here[:-1], done.norm.double()[None], here[-1:]])
        self.sums += torch.where(done.taken > 0, row, 0.0)
        self.skips.add(done.taken)
        masked, examples, pieces = map(int, counted)
        self.pieces += pieces
        self.fresh[0] += pieces
        squares = sum(part.squares for part in parts)
        read = None if self.terms else masked + examples  # those who compare states finish them all
        self.fresh[1] += training_flops(recipe.model, passes, pieces, squares, masked, read)
        self.fresh[2] += 1

    def silent(self) -> bool:
        """Whether somebody who watches has heard nothing for long. Of several processes each has its own clock, so
        they do not ask it."""
        return self.processes.ranks == 1 and time.perf_counter() - self.told > SILENCE

    def line(
        self, step: int, stage: Stage, plan: Sequence[Stage], rate: float, pair: str, anew: bool = True
    ) -> dict[str, Any]:
        """The figures since the last line; `anew`: and then they begin anew. Here the host waits for the device."""
        self.pause()
        pieces, fresh, flops = self.processes.total(self.pieces, *self.fresh[:2])
        found = self.added()
        masked, examples, taken = (max(1.0, found[name]) for name in ("masked", "examples", "taken"))
        passed = max(1e-9, self.seconds - self.since)
        line: dict[str, Any] = {
            "kind": "train",
            "step": step,
            "steps": plan[-1].end,
            "phase": stage.number + 1,
            "passes": stage.phase.passes,
            "rate": rate,
            "masked_loss": found["masked_loss"] / masked,
            "masked_accuracy": found["masked_right"] / masked,
        }
        if pair:
            line |= {f"{pair}_loss": found["pair_loss"] / examples, f"{pair}_accuracy": found["pair_right"] / examples}
        line |= {f"{term.name}_loss": found[term.name] / max(1.0, found[term.per]) for term in self.terms}
        line |= {"norm": found["norm"] / taken, "skipped": int(self.skips.counts[0]), "pieces": int(pieces)}
        line["time"] = {
            "seconds": self.seconds,
            "pieces_per_second": fresh / passed,
            "share_of_peak": flops / passed / (self.peak * self.processes.ranks),
            "seconds_left": passed / max(1.0, self.fresh[2]) * steps_left(step, stage, plan),
        }
        if anew:
            self.sums.zero_()
            self.fresh, self.since = [0.0, 0.0, 0.0], self.seconds
        self.told = time.perf_counter()
        self.resume()
        return line

    def saved(self) -> dict[str, Any]:
        """What resuming needs to write the same lines."""
        (pieces,) = self.processes.total(self.pieces)
        return {"sums": self.added(), "skips": self.skips.counts.tolist(), "pieces": pieces, "seconds": self.seconds}

    def added(self) -> dict[str, float]:
        """The sums by name, over all processes."""
        values = self.sums.tolist()
        summed = self.processes.total(*values[: len(self.own)])
        return dict(zip((*self.own, *self.same), [*summed, *values[len(self.own) :]], strict=True))


def steps_left(step: int, stage: Stage, plan: Sequence[Stage]) -> float:
    """Counted in steps of this stage: one of another stage weighs as many as its pieces and passes say.

    >>> from litebert.recipe import Phase
    >>> from litebert.train.schedule import stages
    >>> plan = stages([Phase(passes=3), Phase(passes=12)], 20)
    >>> steps_left(5, plan[0], plan)
    45.0
    """

    def weight(other: Stage) -> float:
        passes = (other.phase.passes or 1) / (stage.phase.passes or 1)
        return passes * other.phase.length * other.phase.batch / (stage.phase.length * stage.phase.batch)

    return sum(weight(other) * max(0, other.end - max(step, other.first)) for other in plan)
