"""Weights and moments -> something that can be trained, on one device or many; and back to plain tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from litebert.config import HeadConfig, ModelConfig
from litebert.infer.cpu import gains_by_bf16
from litebert.model.heads import Network
from litebert.model.layers import SelfAttention
from litebert.recipe import OptimizerConfig, RunConfig, TuneConfig
from litebert.train.objective import PRECISIONS, Objective, build_objective
from litebert.train.optim import Lamb, build_optimizer
from litebert.train.processes import Processes
from litebert.train.sharded import in_parts

State = dict[str, Tensor]


@dataclass(frozen=True)
class Snapshot:
    """All that a trainee is, as plain tensors on the host."""

    config: ModelConfig
    heads: tuple[HeadConfig, ...]
    weights: State
    moments: State  # `m.NAME` and `v.NAME`; none before the first step
    steps: float  # that the optimizer has made


@dataclass(frozen=True)
class Trainee:
    """A network on its devices with its optimizer."""

    network: Network
    model: nn.Module  # network and losses, wrapped for many devices where there are many
    optimizer: Lamb
    gradient_bytes: int  # that each process exchanges a step

    def snapshot(self) -> Snapshot:
        """With sharded weights every process takes part; each gets the whole."""
        weights = {name: _whole(tensor) for name, tensor in self.network.state_dict().items()}
        moments = {
            f"{kind}.{name}": _whole(value)
            for name, parameter in self.network.named_parameters()
            if parameter.requires_grad
            for kind, value in self.optimizer.state[parameter].items()
        }
        steps = float(self.optimizer.param_groups[0]["steps"])
        return Snapshot(self.network.config, self.network.head_configs, weights, moments, steps)


def assemble(
    start: Snapshot,
    optimizer: OptimizerConfig,
    run: RunConfig,
    processes: Processes,
    made: Callable[[Network], Objective] = Objective,
) -> Trainee:
    """Put a snapshot to work."""
    network = Network(start.config, start.heads)
    network.load_state_dict(start.weights)
    precision = PRECISIONS[resolve_precision(run, processes.device)]
    compiled = is_compiled(run, processes)
    objective = build_objective(network.to(processes.device), precision, compiled, run.checkpointing, made)
    model: nn.Module = objective.train()
    if wants_parts(run, processes):
        from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

        if not start.config.one_layer:  # a layer that all depths share stays whole while it is used
            for part in (*network.encoder.trunk.attention, *network.encoder.trunk.ffn):
                fully_shard(part)
                if isinstance(part, SelfAttention):
                    register_fsdp_forward_method(part, "maps")  # which matching attention calls
        fully_shard(objective)
    else:
        model = in_copies(objective, processes)
    stepper = build_optimizer(network, optimizer)
    restore(stepper, network, start.moments, start.steps)
    exchanged = sum(weight.numel() * weight.element_size() for weight in network.parameters())
    return Trainee(network, model, stepper, exchanged if processes.ranks > 1 else 0)


def in_copies(module: nn.Module, processes: Processes) -> nn.Module:
    """With one copy for each process, whose gradients are averaged."""
    if processes.ranks == 1:
        return module
    return DistributedDataParallel(module, gradient_as_bucket_view=True)


def wants_parts(run: RunConfig, processes: Processes) -> bool:
    return processes.ranks > 1 and run.parallel == "fsdp"


def is_compiled(run: RunConfig, processes: Processes) -> bool:
    return run.compile == "on" or (
        run.compile == "auto" and processes.device.type == "cuda" and not wants_parts(run, processes)
    )


def restore(optimizer: Lamb, network: Network, moments: State, steps: float) -> None:
    for group in optimizer.param_groups:
        group["steps"].fill_(steps)
    for name, parameter in network.named_parameters():
        # what never had a gradient has none, as a pooler where every piece is tagged; a matrix of Muon's has no v
        kept = {kind: moments[f"{kind}.{name}"] for kind in ("m", "v") if f"{kind}.{name}" in moments}
        optimizer.state[parameter] = {kind: _like(moment, parameter) for kind, moment in kept.items()}


def _like(tensor: Tensor, parameter: Tensor) -> Tensor:
    tensor = tensor.to(parameter.device, parameter.dtype)
    if in_parts(parameter):
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(tensor, parameter.device_mesh, parameter.placements)
    return tensor.clone()


def _whole(tensor: Any) -> Tensor:
    whole: Tensor = tensor.full_tensor() if in_parts(tensor) else tensor
    return whole.detach().to("cpu", copy=True).contiguous()


def resolve_precision(run: RunConfig | TuneConfig, device: torch.device) -> Literal["bf16", "fp32", "fp64"]:
    if run.precision != "auto":
        return run.precision
    return "bf16" if device.type == "cuda" else "fp32"


def quicker(tune: TuneConfig, device: torch.device) -> tuple[str, ...]:
    """A note on what is left to the user, since numbers would differ from machine to machine."""
    if tune.precision != "auto" or device.type != "cpu" or not gains_by_bf16():
        return ()
    return ("this CPU multiplies in bf16 itself: --set tune.precision=bf16 is quicker, and rounds more",)


def one_type(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """With every token type as the first: the others were never met, and what is random in them would disturb whoever
    reads pairs later."""
    name = "encoder.embeddings.types.weight"
    found = dict(weights)
    if name in found:
        found[name] = found[name][:1].expand_as(found[name]).contiguous()
    return found
