"""Gradients -> weights: LAMB, Adam and Muon as the originals have them, and clipping.

Every step is a handful of operations over all tensors at once, and nothing in it waits for the device: a gradient that
is not finite is found there, and the step that would have used it changes nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from litebert.recipe import OptimizerConfig
from litebert.strict import UserError
from litebert.train.sharded import in_parts

TABLES = (".words.", ".positions.", ".types.")
BETWEEN = (".trunk.", ".project.", ".pooler.", ".dense.")  # matrices from states to states: no table, no scores


class Lamb:
    """LAMB as google-research/albert has it (lamb_optimizer.py): no bias correction, epsilon outside the root, decay
    inside the update, and each tensor's step scaled by ‖weight‖ / ‖update‖. `adapt=False` in a group leaves that
    scaling out: with it the whole is the Adam that Google fine-tunes with, and with `correct_bias` AdamW.

    `muon=True` in a group makes the update Muon's: momentum, and all of a matrix's directions as long as each other.

    A parameter that holds several of the original's tensors (query, key and value) is taken block by block. It looks
    like a `torch.optim.Optimizer` and is none: making one of those imports PyTorch's compiler, seconds for nothing.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        lr: float | Tensor,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        correct_bias: bool = False,
    ) -> None:
        usual = {"lr": lr, "betas": betas, "eps": eps, "correct_bias": correct_bias, "steps": 0.0}
        usual |= {"weight_decay": 0.0, "adapt": True, "blocks": 1, "muon": False}
        self.param_groups: list[dict[str, Any]] = [usual | group for group in groups]
        self.state: defaultdict[Tensor, dict[str, Tensor]] = defaultdict(dict)

    def zero_grad(self) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                weight.grad = None

    @torch.no_grad()
    def step(self, take: Tensor | float = 1.0) -> None:
        """`take` is 1, or 0 on the device to leave everything as it is; the gradients must be finite all the same. The
        rate (`lr`) may be a number on the device too: then a step is the same work whatever it is."""
        for group in self.param_groups:
            group["steps"] += take
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._step(group, weights, take)

    def _step(self, group: dict[str, Any], weights: list[Tensor], take: Tensor | float) -> None:
        update = self._muon(group, weights, take) if group["muon"] else self._adam(group, weights, take)
        if group["weight_decay"]:
            torch._foreach_add_(update, _local(weights), alpha=group["weight_decay"])
        if group["adapt"]:
            parts = _blocks(weights, update, group["blocks"])
            sizes = _norms(_blocks(weights, _local(weights), group["blocks"]), weights[0])
            strides = _norms(parts, weights[0])
            ratio = torch.where((sizes > 0) & (strides > 0), sizes / strides, 1.0) * (group["lr"] * take)
            torch._foreach_mul_(parts, list(ratio.unbind()))
        else:
            torch._foreach_mul_(update, _like(group["lr"] * take, update[0]))
        torch._foreach_sub_(_local(weights), update)

    def _moments(self, weights: list[Tensor], names: str) -> Iterator[list[Tensor]]:
        for name in names:
            for weight in weights:
                if name not in self.state[weight]:
                    self.state[weight][name] = torch.zeros_like(weight)
            yield _local(self.state[weight][name] for weight in weights)

    def _adam(self, group: dict[str, Any], weights: list[Tensor], take: Tensor | float) -> tuple[Tensor, ...]:
        gradients = _local(weight.grad for weight in weights)
        m, v = self._moments(weights, "mv")
        first, second = group["betas"]
        torch._foreach_mul_(m, 1 - (1 - first) * take)
        torch._foreach_add_(m, gradients, alpha=1 - first)
        torch._foreach_mul_(v, 1 - (1 - second) * take)
        torch._foreach_addcmul_(v, gradients, gradients, 1 - second)
        update = torch._foreach_sqrt(v)
        made = group["steps"].clamp(min=1) if isinstance(group["steps"], Tensor) else max(1.0, group["steps"])
        if group["correct_bias"]:
            torch._foreach_div_(update, _like((1 - second**made) ** 0.5, v[0]))
        torch._foreach_add_(update, group["eps"])
        update = torch._foreach_div(m, update)
        if group["correct_bias"]:
            torch._foreach_div_(update, _like(1 - first**made, m[0]))
        return update

    def _muon(self, group: dict[str, Any], weights: list[Tensor], take: Tensor | float) -> tuple[Tensor, ...]:
        """Nesterov's momentum, made orthogonal; its size is what Adam's would be, so that Adam's rates suit it."""
        gradients = _local(weight.grad for weight in weights)
        (m,) = self._moments(weights, "m")
        keep = group["momentum"]
        torch._foreach_mul_(m, 1 - (1 - keep) * take)
        torch._foreach_add_(m, gradients, alpha=1 - keep)
        update = torch._foreach_mul(m, keep)
        torch._foreach_add_(update, gradients, alpha=1 - keep)
        alike: dict[tuple[int, int], list[Tensor]] = {}
        for part in _blocks(weights, update, group["blocks"]):
            part = part if part.shape[0] <= part.shape[1] else part.T
            alike.setdefault((part.shape[0], part.shape[1]), []).append(part)
        for (_, columns), parts in alike.items():
            torch._foreach_copy_(parts, list((orthogonal(torch.stack(parts)) * (group["rms"] * columns**0.5)).unbind()))
        return update


def orthogonal(matrices: Tensor, rounds: int = 5) -> Tensor:
    """Each of these (N, rows, columns), not higher than wide, with all its singular values near 1 (0.7 to 1.2), by
    products alone: a polynomial of Newton and Schulz's kind whose coefficients (Jordan, 2024) lift small ones fast."""
    x = matrices.bfloat16() if matrices.is_cuda and matrices.dtype == torch.float32 else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-20)
    for _ in range(rounds):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    found: Tensor = x.to(matrices.dtype)
    return found


def _like(value: Tensor | float, other: Tensor) -> Tensor | float:
    return value.to(other.dtype) if isinstance(value, Tensor) else value


def _local(tensors: Iterable[Tensor | None]) -> list[Tensor]:
    """What this process holds of each: all of it, or its part where weights are sharded."""
    return [tensor.to_local() if in_parts(tensor) else tensor for tensor in tensors if tensor is not None]


def _blocks(weights: Sequence[Tensor], values: Sequence[Tensor], blocks: int) -> list[Tensor]:
    """The rows of each value that belong to each of its weight's blocks; a part of a weight may hold none of some."""
    found = []
    for weight, value in zip(weights, values, strict=True):
        rows, first = weight.shape[0], _first_row(weight)
        for block in range(blocks):
            low, high = (max(0, rows * edge // blocks - first) for edge in (block, block + 1))
            found.append(value[low:high])
    return found


def _first_row(weight: Tensor) -> int:
    """Which row of the whole weight this process's part begins with."""
    if not in_parts(weight):
        return 0
    mesh = weight.device_mesh
    share = -(-weight.shape[0] // mesh.size())  # FSDP cuts rows as `torch.chunk` does
    return min(weight.shape[0], share * mesh.get_local_rank())


def _norms(parts: list[Tensor], like: Tensor) -> Tensor:
    """‖part‖ of each, over all processes where `like` is sharded."""
    norms = torch.stack(torch._foreach_norm(parts))
    if in_parts(like):
        norms = norms.square()
        dist.all_reduce(norms, group=like.device_mesh.get_group())
        norms = norms.sqrt()
    return norms


def parameter_groups(
    network: nn.Module,
    weight_decay: float,
    adapt: bool = True,
    scale: Callable[[str], float] = lambda _: 1.0,
    muon: dict[str, float] | None = None,
) -> list[dict[str, Any]]:
    """Groups: matrices and tables; stacked query-key-value matrices; norms and biases, which neither decay nor adapt.
    `scale` says of a weight's name what its rate is multiplied by; `muon` is for matrices between states."""
    found: dict[tuple[float, int, bool], list[Tensor]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            kind = 2 if parameter.dim() < 2 else 1 if name.endswith("qkv.weight") else 0
            between = muon is not None and kind < 2 and any(part in name for part in BETWEEN)
            found.setdefault((scale(name), kind, between), []).append(parameter)
    groups = []
    for rate, kind, between in sorted(found, key=lambda key: (-key[0], *key[1:])):
        group: dict[str, Any] = {"params": found[rate, kind, between], "scale": rate, "blocks": 3 if kind == 1 else 1}
        decays = kind < 2
        group |= {"weight_decay": weight_decay if decays else 0.0, "adapt": adapt and decays}
        groups.append(group | {"muon": True, **(muon or {})} if between else group)
    return groups


def build_optimizer(network: nn.Module, config: OptimizerConfig, scale: Callable[[str], float] = lambda _: 1.0) -> Lamb:
    """Its rates and its count of steps are numbers on the device."""

    def times(name: str) -> float:
        return scale(name) * (config.tables if any(part in name for part in TABLES) else 1.0)

    muon = {"momentum": config.momentum, "rms": config.rms} if config.kind == "muon" else None
    groups = parameter_groups(network, config.weight_decay, config.kind == "lamb", times, muon)
    first = groups[0]["params"][0]
    made = Lamb(groups, 0.0, (config.betas[0], config.betas[1]), config.eps, config.correct_bias)
    for group in made.param_groups:
        group["lr"] = torch.zeros((), dtype=first.dtype, device=first.device)
        group["steps"] = torch.zeros((), dtype=torch.float64, device=first.device)
    return made


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], most: float = 0.0) -> tuple[Tensor, Tensor]:
    """Scale all gradients so that their common norm is at most this (0: leave them). Returns, on the device, the norm
    before, and 1 if it is finite; if not, the gradients are zero and that is 0."""
    weights = [parameter for parameter in parameters if parameter.grad is not None]
    if not weights:
        raise UserError("there is no gradient to clip: nothing took part in the loss")
    gradients = _local(weight.grad for weight in weights)
    norm: Tensor = torch.linalg.vector_norm(_norms(gradients, weights[0]))
    finite = torch.isfinite(norm)
    scale = torch.clamp(most / norm.clamp(min=1e-12), max=1.0) if most else torch.ones_like(norm)
    torch._foreach_mul_(gradients, torch.where(finite, scale, 0.0))
    for gradient in gradients:  # nan times zero is nan
        gradient.nan_to_num_(0.0, 0.0, 0.0)
    return norm, finite.to(norm.dtype)
