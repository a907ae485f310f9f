"""Whole steps as CUDA graphs: when a step is short, starting its thousand kernels one by one takes longer than they do.

A graph is recorded for each shape of input that comes back, and replayed on its own copy of the inputs. Rows are filled
up to one of a few sizes (feed.py), so there are few shapes; whatever has not been recorded runs as it is.

Nothing may be compiled while recording. So the first step of a shape runs on the very copy and the very stream that the
second is recorded on: whatever depends on them has been compiled by then.
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
class Recorded:
    graph: torch.cuda.CUDAGraph
    done: Done  # the outputs it writes


class Replay(Generic[T]):
    """Does what `work` does, for updates of one part."""

    def __init__(self, work: Callable[[list[T]], Done]) -> None:
        self.work = work
        self.graphs: dict[object, Recorded] = {}
        self.seen: dict[object, T] = {}  # run once, on these inputs
        self.pool: Any = None
        self.stream: torch.cuda.Stream | None = None
        self.fresh = False  # whether the last step took long because its shape was new

    def __call__(self, parts: list[T]) -> Done:
        self.fresh = False
        if len(parts) != 1:
            return self.work(parts)
        shape = parts[0].shape
        if shape not in self.seen:
            self.fresh = True
            self.seen[shape] = part = deepcopy(parts[0])
            return self.first(part)
        if shape not in self.graphs and len(self.graphs) == MOST:
            return self.work(parts)
        part = self.seen[shape]
        for ours, theirs in zip(part.tensors(), parts[0].tensors(), strict=True):
            ours.copy_(theirs, non_blocking=True)
        if shape not in self.graphs:
            self.fresh = True
            self.graphs[shape] = self.record(part)
        recorded = self.graphs[shape]
        recorded.graph.replay()
        return recorded.done

    def first(self, part: T) -> Done:
        """As it is: compilers and libraries make their plans."""
        self.stream = self.stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            done = self.work([part])
        torch.cuda.current_stream().wait_stream(self.stream)
        return done

    def record(self, part: T) -> Recorded:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
            done = self.work([part])
        self.pool = self.pool or graph.pool()
        return Recorded(graph, done)
