"""A name on the hub -> the folder that it was fetched into."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from litebert.config import UserError
from litebert.files import first_line


def fetch(name: str, patterns: Sequence[str], kind: Literal["model", "dataset"] = "model") -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError:
        raise UserError(f"no folder {name}; to fetch it from the hub: pip install 'litebert[hub]'") from None
    try:
        return Path(snapshot_download(name, repo_type=kind, allow_patterns=list(patterns)))
    except (OSError, ValueError, HfHubHTTPError) as problem:
        raise UserError(f"no folder {name}, and the hub did not give it: {first_line(problem)}") from None
