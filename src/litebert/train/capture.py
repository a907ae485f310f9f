"""Whole steps as CUDA graphs: when a step is short, starting its thousand kernels one by one takes longer than they do.

A graph is recorded for each shape of input that comes back, and replayed on its own copy of the inputs. Rows are filled
up to one of a few sizes (feed.py), so there are few shapes; whatever has not been recorded runs as it is.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from litebert.train.steps import Done

MOST = 64  # graphs


class Inputs(Protocol):
    """Something that a step learns from."""

    @property
    def shape(self) -> object: ...  # a step of the same shape is the same work
    def tensors(self) -> list[Tensor]: ...  # all that differs between two of them


T = TypeVar("T", bound=Inputs)


@dataclass(frozen=True)
class Recorded(Generic[T]):
    graph: torch.cuda.CUDAGraph
    part: T  # the inputs it reads
    done: Done  # the outputs it writes


class Replay(Generic[T]):
    """Does what `work` does, for updates of one part."""

    def __init__(self, work: Callable[[list[T]], Done]) -> None:
        self.work = work
        self.graphs: dict[object, Recorded[T]] = {}
        self.seen: set[object] = set()
        self.pool: Any = None

    def __call__(self, parts: list[T]) -> Done:
        if len(parts) != 1:
            return self.work(parts)
        shape = parts[0].shape
        if shape in self.graphs:
            recorded = self.graphs[shape]
            for ours, theirs in zip(recorded.part.tensors(), parts[0].tensors(), strict=True):
                ours.copy_(theirs, non_blocking=True)
        elif shape in self.seen and len(self.graphs) < MOST:
            self.graphs[shape] = recorded = self.record(deepcopy(parts[0]))
        else:  # the first time it runs as it is: compilers and libraries make their plans
            self.seen.add(shape)
            return self.work(parts)
        recorded.graph.replay()
        return recorded.done

    def record(self, part: T) -> Recorded[T]:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            done = self.work([part])
        self.pool = self.pool or graph.pool()
        return Recorded(graph, part, done)
