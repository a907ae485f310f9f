"""Files: one that is written is whole or not there at all; JSON that is read is an object or one line says why."""

import json
import os
from pathlib import Path
from typing import Any

from litebert.strict import UserError


def replace_file(path: Path, data: bytes) -> None:
    """The file appears, or changes, in one moment: a killed process leaves the old one."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise UserError(f"{path} is not readable JSON: {first_line(problem)}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path} is not a JSON object")
    return data


def first_line(problem: BaseException) -> str:
    """What an exception says, in one line."""
    return (str(problem).splitlines() or [""])[0] or type(problem).__name__
