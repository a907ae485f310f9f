"""A folder -> the files below it, in the order of their names."""

import os
from pathlib import Path

from litebert.config import UserError


def files_below(root: Path) -> list[str]:
    """None that is hidden or in a hidden folder. Links to folders are followed last, and no folder is read twice."""
    found: list[str] = []
    seen: set[str] = set()
    starts = [root]
    for start in starts:
        for here, folders, names in os.walk(start, onerror=_no_folder):
            real = os.path.realpath(here)
            if real in seen:
                folders.clear()
                continue
            seen.add(real)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            starts += [path for name in folders if (path := Path(here, name)).is_symlink()]
            paths = (Path(here, name) for name in names if not name.startswith("."))
            found += [str(path) for path in paths if path.is_file()]
    return sorted(found)


def _no_folder(problem: OSError) -> None:
    """Folders of others are passed over; on a disk that fails, nothing is."""
    if not isinstance(problem, PermissionError):
        raise UserError(f"cannot read {problem.filename}: {problem.strerror}")
