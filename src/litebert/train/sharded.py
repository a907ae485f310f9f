"""Whether a weight is here in part only.

PyTorch's code for that takes a second to import, so nobody asks for it who has one process: where it was not imported,
nothing is in parts.
"""

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor


def in_parts(tensor: Any) -> "TypeGuard[DTensor]":
    return _is_a(tensor, "torch.distributed.tensor", "DTensor")


def is_sharded(model: Any) -> "TypeGuard[FSDPModule]":
    return _is_a(model, "torch.distributed.fsdp", "FSDPModule")


def _is_a(value: Any, module: str, kind: str) -> bool:
    found = getattr(sys.modules.get(module), kind, None)
    return found is not None and isinstance(value, found)
