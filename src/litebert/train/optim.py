"""Gradients -> weights: LAMB and Adam as the originals have them, clipping, and the learning rate over a run.

Every step is a handful of operations over all tensors at once, and nothing in it waits for the device.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from litebert.config import UserError


class Lamb(torch.optim.Optimizer):
    """LAMB as google-research/albert has it (lamb_optimizer.py): no bias correction, epsilon outside the root, decay
    inside the update, and each tensor's step scaled by ‖weight‖ / ‖update‖. `adapt=False` in a group leaves that
    scaling out: with it the whole is the Adam that Google fine-tunes with.

    A parameter that holds several of the original's tensors (query, key and value) is scaled block by block.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
    ) -> None:
        super().__init__(
            groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "adapt": True, "blocks": 1}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        if closure is not None:
            raise UserError("this optimizer takes no closure")
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if weights:
                self._step(group, weights)

    def _step(self, group: dict[str, Any], weights: list[Tensor]) -> None:
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        for weight in weights:
            if not self.state[weight]:
                self.state[weight] = {"m": torch.zeros_like(weight), "v": torch.zeros_like(weight)}
        m = [self.state[weight]["m"] for weight in weights]
        v = [self.state[weight]["v"] for weight in weights]
        first, second = group["betas"]
        torch._foreach_lerp_(m, gradients, 1 - first)
        torch._foreach_mul_(v, second)
        torch._foreach_addcmul_(v, gradients, gradients, 1 - second)
        update = torch._foreach_sqrt(v)
        torch._foreach_add_(update, group["eps"])
        update = torch._foreach_div(m, update)
        if group["weight_decay"]:
            torch._foreach_add_(update, weights, alpha=group["weight_decay"])
        if group["adapt"]:
            blocks = group["blocks"]
            parts = [part for tensor in update for part in tensor.chunk(blocks)]
            sizes = torch.stack(torch._foreach_norm([part for weight in weights for part in weight.chunk(blocks)]))
            strides = torch.stack(torch._foreach_norm(parts))
            ratio = torch.where((sizes > 0) & (strides > 0), sizes / strides, 1.0)
            torch._foreach_mul_(parts, list(ratio.unbind()))
        torch._foreach_add_(weights, update, alpha=-group["lr"])


def parameter_groups(network: nn.Module, weight_decay: float, adapt: bool = True) -> list[dict[str, Any]]:
    """Three groups: matrices and tables; stacked query-key-value matrices; norms and biases, which neither decay nor
    adapt."""
    plain: list[Tensor] = []
    stacked: list[Tensor] = []
    tables: list[Tensor] = []
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        (plain if parameter.dim() < 2 else stacked if name.endswith("qkv.weight") else tables).append(parameter)
    groups = [
        {"params": tables, "weight_decay": weight_decay, "adapt": adapt},
        {"params": stacked, "weight_decay": weight_decay, "adapt": adapt, "blocks": 3},
        {"params": plain, "weight_decay": 0.0, "adapt": False},
    ]
    return [group for group in groups if group["params"]]


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], most: float) -> Tensor:
    """Scale all gradients so that their common norm is at most this; returns the norm before, on the device."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        raise UserError("there is no gradient to clip: nothing took part in the loss")
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    torch._foreach_mul_(gradients, torch.clamp(most / norm.clamp(min=1e-12), max=1.0))
    return norm


def learning_rate(step: int, steps: int, peak: float, warmup: int) -> float:
    """Linear from 0 to the peak, then linear to 0 at the end. Steps count from 0; the first update already moves.

    >>> [learning_rate(step, 10, 1.0, 2) for step in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.5, 0.125]
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * max(0.0, (steps - step) / max(1, steps - warmup))
