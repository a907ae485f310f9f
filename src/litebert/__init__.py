"""litebert: the lite BERT family as settings of one small, fast, readable machine.

>>> from litebert import PRESETS
>>> PRESETS["albert-base"].hidden_size
768
"""

from typing import TYPE_CHECKING, Any

from litebert.config import PRESETS, HeadConfig, ModelConfig, UserError

if TYPE_CHECKING:
    from litebert.infer.model import Model, load

__version__ = "0.1.0"
__all__ = ["PRESETS", "HeadConfig", "Model", "ModelConfig", "UserError", "load"]


def __getattr__(name: str) -> Any:
    """`load` and `Model` bring torch along, so they are imported when first asked for."""
    if name in ("Model", "load"):
        from litebert.infer import model

        return getattr(model, name)
    raise AttributeError(f"module 'litebert' has no attribute {name!r}")
