"""Phases and a number of steps -> which phase each step belongs to, and its learning rate."""

from collections.abc import Sequence
from dataclasses import dataclass

from litebert.recipe import Phase
from litebert.strict import UserError


@dataclass(frozen=True)
class Stage:
    """A phase with its place in the run: steps `first` up to, but not including, `end`."""

    number: int
    phase: Phase
    first: int
    end: int

    @property
    def warmup(self) -> int:
        """Steps over which the rate rises."""
        wanted, steps = self.phase.warmup, self.end - self.first
        return min(steps, round(wanted if wanted >= 1 else wanted * steps))


def stages(phases: Sequence[Phase], steps: int) -> list[Stage]:
    """
    >>> [(stage.first, stage.end) for stage in stages([Phase(share=9), Phase(share=1)], 50)]
    [(0, 45), (45, 50)]
    """
    if steps < len(phases):
        raise UserError(f"{steps} steps are too few for {len(phases)} phases")
    whole, done, first = sum(phase.share for phase in phases), 0.0, 0
    found = []
    for number, phase in enumerate(phases):
        done += phase.share
        left = len(phases) - 1 - number  # every phase gets a step at least
        end = min(max(round(steps * done / whole), first + 1), steps - left)
        found.append(Stage(number, phase, first, end))
        first = end
    return found


def rate_at(plan: Sequence[Stage], step: int, hold: float = 0.0) -> float:
    """The learning rate of a step, counted from 0: up over a phase's warm-up, and, from the end of the first warm-up or
    of the share that is held, down in a line that would reach 0 with the step after the last.

    >>> plan = stages([Phase(rate=1.0, warmup=2)], 10)
    >>> [rate_at(plan, step) for step in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.125]
    >>> [rate_at(plan, step, hold=0.5) for step in (4, 5, 9)]
    [1.0, 1.0, 0.2]
    """
    stage = stage_at(plan, step)
    inside, steps = step - stage.first, plan[-1].end
    rising = (inside + 1) / stage.warmup if inside < stage.warmup else 1.0
    falls_from = max(plan[0].warmup, round(hold * steps))
    falling = min(1.0, (steps - step) / max(1, steps - falls_from))
    return stage.phase.rate * rising * falling


def stage_at(plan: Sequence[Stage], step: int) -> Stage:
    return next(stage for stage in plan if step < stage.end)


def steps_in(phases: Sequence[Phase], seconds: Sequence[float], budget: float) -> int:
    """How many steps fit a budget of seconds, when a step of each phase takes so many.

    >>> steps_in([Phase(share=1), Phase(share=1)], [1.0, 3.0], 100.0)
    50
    """
    whole = sum(phase.share for phase in phases)
    mean = sum(phase.share / whole * each for phase, each in zip(phases, seconds, strict=True))
    return max(len(phases), int(budget / mean))
