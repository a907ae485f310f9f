"""Files: one that is written is whole or not there at all; JSON that is read is an object or one line says why; what
one process writes others leave alone."""

import difflib
import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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


def copy_folder(folder: Path, to: Path) -> None:
    """The copy appears, or takes the place of another, when it is whole."""
    partial = to.with_name(f".{to.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        shutil.copytree(folder, partial)
        swap(partial, to)
    except OSError as problem:  # of several files: each with what happened to it
        raise UserError(f"cannot copy {folder} to {to}: {first_line(problem)}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def swap(made: Path, to: Path) -> None:
    """A folder takes the place of another. Killed in between, the other is there by another name: see `unswap`."""
    before = to.with_name(f".{to.name}.before")
    shutil.rmtree(before, ignore_errors=True)
    if to.exists():
        to.rename(before)
    made.rename(to)
    shutil.rmtree(before, ignore_errors=True)


def unswap(to: Path) -> None:
    """What a process that was killed while it swapped folders has left."""
    before = to.with_name(f".{to.name}.before")
    if to.exists():
        shutil.rmtree(before, ignore_errors=True)
    elif before.exists():
        before.rename(to)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process at a time: a lock on the folder, which the system lets go when a process ends, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UserError(f"another process is writing {folder}; wait for it, or choose another --to") from None
    try:
        yield
    finally:
        os.close(handle)


def meant(path: str | Path, also: Iterable[str] = ()) -> str:
    """The end of an error's line, where a path that is not there is all but one that is, or a name among `also`."""
    path = Path(path)
    here = next((each for each in (path, *path.parents) if os.path.isdir(each.parent)), path)
    try:
        names = sorted({*os.listdir(here.parent)} - {here.name})
    except OSError:
        names = []
    if here != path:  # a folder on the way
        names = [name for name in names if os.path.isdir(here.parent / name)]
    stems = {Path(name).stem: name for name in names}  # an ending that is the same makes no two names alike
    near = [
        str(here.parent / stems[stem]) for stem in difflib.get_close_matches(here.stem[:80], stems, n=1, cutoff=0.7)
    ]
    near = near or difflib.get_close_matches(str(path)[:80], also, n=1, cutoff=0.85)
    return f"; did you mean {near[0]!r}?" if near else ""


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
