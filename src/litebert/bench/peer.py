"""The peer that is measured against, and the waiting that every measurement on a GPU needs."""

from importlib import import_module
from typing import Any

import torch

from litebert.config import UserError


def transformers(*beside: str) -> Any:
    """The package, if it and what it needs beside it are there."""
    try:
        for name in beside:
            import_module(name)
        return import_module("transformers")
    except ImportError:
        raise UserError("the peer is not installed; install it with: pip install 'litebert[bench]'") from None


def wait(device: torch.device) -> None:
    """Until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()
