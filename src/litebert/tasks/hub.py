"""A name on the hub -> the folder that it was fetched into."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from litebert.config import UserError
from litebert.files import first_line, meant
from litebert.text.tokenizer import SHIPPED_NAMES


def fetch(name: str, patterns: Sequence[str], kind: Literal["model", "dataset"] = "model") -> Path:
    end = meant(name, SHIPPED_NAMES)
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError:
        remedy = f"to fetch it from the hub: pip install 'litebert[hub]'{end}"
        raise UserError(f"no folder {name}; {remedy}") from None
    try:
        return Path(snapshot_download(name, repo_type=kind, allow_patterns=list(patterns)))
    except (OSError, ValueError, HfHubHTTPError) as problem:
        why = f"the hub did not give it: {first_line(problem)}{end}"
        raise UserError(f"no folder {name}, and {why}") from None
