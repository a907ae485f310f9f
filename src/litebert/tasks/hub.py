"""A name on the hub -> the folder that it was fetched into."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from litebert.config import UserError
from litebert.files import first_line
from litebert.text.tokenizer import SHIPPED


def fetch(name: str, patterns: Sequence[str], kind: Literal["model", "dataset"] = "model") -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError:
        remedy = f"to fetch it from the hub: pip install 'litebert[hub]'{meant(name)}"
        raise UserError(f"no folder {name}; {remedy}") from None
    try:
        return Path(snapshot_download(name, repo_type=kind, allow_patterns=list(patterns)))
    except (OSError, ValueError, HfHubHTTPError) as problem:
        why = f"the hub did not give it: {first_line(problem)}{meant(name)}"
        raise UserError(f"no folder {name}, and {why}") from None


def meant(name: str) -> str:
    """The end of an error's line, where the name is all but that of a model which comes with the package.

    >>> meant("litebert-bas"), meant("albert-base-v2")
    ("; did you mean 'litebert-base'?", '')
    """
    near = difflib.get_close_matches(name[:80], [folder.name for folder in SHIPPED.glob("*/")], n=1, cutoff=0.85)
    return f"; did you mean {near[0]!r}?" if near else ""
