"""Bytes in, a file out that is whole or not there at all."""

import os
from pathlib import Path


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
