"""One process or many, as `torchrun` started them: who we are, on which device, and what all of us agree on."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from litebert.strict import PeerError, SharedError, UserError

T = TypeVar("T")
GONE = ("Connection closed by", "Connection reset by peer", "ncclRemoteError")  # what Gloo and NCCL say of a peer


@dataclass(frozen=True)
class Processes:
    """This process among its fellows."""

    device: torch.device
    rank: int = 0
    ranks: int = 1
    control: dist.ProcessGroup | None = None  # over the hosts: agreeing on numbers never waits for a device

    @property
    def lead(self) -> bool:
        return self.rank == 0

    def total(self, *numbers: float) -> list[float]:
        """Each number summed over all processes."""
        if self.ranks == 1:
            return list(numbers)
        values = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(values, group=self.control)
        return [float(value) for value in values]

    def from_lead(self, *numbers: float) -> list[float]:
        """The first process's numbers, for all."""
        return self.total(*(number if self.lead else 0.0 for number in numbers))

    def on_lead(self, work: Callable[[], T]) -> T:
        """What the first process finds, for all; a mistake of the user's that it finds is everyone's."""
        if self.ranks == 1:
            return work()
        found: T | None = None
        problem = ""
        if self.lead:
            try:
                found = work()
            except UserError as error:
                problem = str(error)
        found, problem = self.share((found, problem))
        if problem:
            raise self.mistake(problem)
        return found  # type: ignore[return-value]

    def each(self, work: Callable[[], T]) -> T:
        """What every process finds for itself; a mistake that the first finds too is told once."""
        if self.ranks == 1:
            return work()
        found: list[T] = []
        problem: UserError | None = None
        try:
            found.append(work())
        except UserError as error:
            problem = error
        first = self.share(str(problem) if problem else "")
        if first:
            raise self.mistake(first)
        if problem is not None:
            raise problem
        return found[0]

    def mistake(self, what: str) -> UserError:
        """Of something that all have found together: the first process says it."""
        return UserError(what) if self.lead else SharedError(what)

    def wait(self) -> None:
        if self.ranks > 1:
            dist.barrier(group=self.control)

    def share(self, value: T) -> T:
        """The first process's value, for all: something small."""
        if self.ranks == 1:
            return value
        holder = [value]
        dist.broadcast_object_list(holder, 0, group=self.control)
        return holder[0]

    def alike(self, value: object) -> bool:
        """Whether all processes have the same."""
        return not self.total(self.share(value) != value)[0]

    def dealt(self, values: Sequence[T]) -> Sequence[T]:
        """This process's share of what all of them hold."""
        return values[self.rank :: self.ranks]

    def gathered(self, values: list[T]) -> list[T]:
        """What was made of each share, in the order of the whole, for all."""
        if self.ranks == 1:
            return values
        parts: list[list[T]] = [[] for _ in range(self.ranks)]
        dist.all_gather_object(parts, values, group=self.control)
        return [parts[at % self.ranks][at // self.ranks] for at in range(sum(map(len, parts)))]

    def share_tensors(self, tensors: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
        """The first process's tensors, for all: the others need no disk in common with it."""
        if self.ranks == 1:
            return dict(tensors or {})
        kinds = self.share({name: (each.shape, each.dtype) for name, each in (tensors or {}).items()})
        found = {}
        for name, (shape, kind) in kinds.items():
            found[name] = tensors[name].contiguous() if tensors and self.lead else torch.empty(shape, dtype=kind)
            dist.broadcast(found[name], 0, group=self.control)
        return found


def pick_device(device: str, local: int = 0, beside: int = 1) -> torch.device:
    """cuda, cpu, or with auto a GPU where there is one: the local-th, for one of `beside` processes on this machine.
    Their number decides nothing: a launcher may show each process a GPU of its own as the only one."""
    if device not in ("auto", "cuda", "cpu"):
        raise UserError(f"--device {device!r}; allowed: auto, cuda, cpu")
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if kind != "cuda":
        return torch.device(kind)
    if not torch.cuda.is_available():
        raise UserError("no CUDA device here; leave --device out, or say cpu")
    if local >= (count := torch.cuda.device_count()):
        started = max(beside, local + 1)
        raise UserError(f"{started} processes on a machine with {count} GPUs; start fewer")
    torch.cuda.set_device(local)
    return torch.device(kind, local)


@contextmanager
def joined(device: str = "auto") -> Iterator[Processes]:
    """Join the others that `torchrun` started, if it did, and leave them properly."""
    said = {"WORLD_SIZE": 1, "RANK": 0, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
    ranks, rank, local, beside = (int(os.environ.get(name, value)) for name, value in said.items())
    here = pick_device(device, local, beside)
    if ranks == 1:
        yield Processes(here)
        return
    dist.init_process_group("cpu:gloo,cuda:nccl" if here.type == "cuda" else "gloo")
    try:
        together = Processes(here, rank, ranks, dist.new_group(backend="gloo"))
        yield together
        together.wait()  # whoever has nothing left to do stays until the first has written everything
    except RuntimeError as problem:
        if not any(sign in str(problem) for sign in GONE):
            raise
        raise PeerError("another process of this run ended; see what it said") from None
    finally:
        dist.destroy_process_group()
