"""A run's directory: recipe, plan, environment, metrics, checkpoints. Killed at any moment, it can go on.

recipe.toml            every setting, as resolved when the run began
plan.json              the number of steps, fixed once
environment.jsonl      one line a start: versions, device, command
metrics.jsonl          one line a log, an evaluation; `tensorboard/` shows the same
checkpoints/step-N/    a model folder with the optimizer's state beside it; whole or not there
model/                 the finished model
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Container, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from litebert.config import HeadConfig, ModelConfig
from litebert.files import first_line, read_json, replace_file, swap, unswap
from litebert.model.weights import read_our_config, save_state
from litebert.recipe import Recipe, TuneRecipe, load_recipe, read_recipe
from litebert.strict import UserError, parse, to_toml
from litebert.tasks.taught import Taught, write_taught
from litebert.text.tokenizer import Tokenizer

RECIPE, PLAN, METRICS, MODEL = "recipe.toml", "plan.json", "metrics.jsonl", "model"
HOW = {  # may change on the way
    "workers",
    "micro_batch",
    "checkpointing",
    "log_every",
    "save_every",
    "keep",
    "most_skips",
    "compile",
    "capture",
}


class Run:
    """The directory of one run, locked while this process has it open."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.board: Any = None
        self._metrics: IO[str] | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = open(folder / "lock", "w")  # noqa: SIM115  held as long as the run is open
        except OSError as problem:
            raise UserError(f"cannot write {folder}: {problem.strerror or problem}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise UserError(
                f"another process is training in {folder}; wait for it, or choose another directory"
            ) from None

    def close(self) -> None:
        for part in (self._metrics, self.board, self._lock):
            if part is not None:
                with contextlib.suppress(OSError):  # a full disk has been spoken of already
                    part.close()

    def abandon(self) -> None:
        """Close what came to nothing; a directory that was made for it goes too."""
        if not self.begun():
            (self.folder / "lock").unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # there is something else in it
                self.folder.rmdir()
        self.close()

    def begun(self) -> bool:
        return (self.folder / RECIPE).is_file()

    def begin(self, recipe: Recipe | TuneRecipe) -> None:
        self.write(RECIPE, to_toml(recipe))

    def ended(self) -> dict[str, Any] | None:
        """The last line of a run that is finished."""
        if not (self.folder / MODEL / "litebert.json").is_file():
            return None
        found = [line for line in self.lines() if line["kind"] == "final"]
        return dict(found[-1]) if found else {}

    def lines(self) -> list[dict[str, Any]]:
        """What the run has said so far."""
        path = self.folder / METRICS
        if not path.is_file():
            raise UserError(f"{path} is gone, and with it what this run scored; its model may still be there")
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def rename(self, name: str, to: str) -> Path:
        try:
            swap(self.folder / name, self.folder / to)
        except OSError as problem:
            raise self.trouble(to, problem) from None
        return self.folder / to

    def recipe(self) -> Recipe:
        return load_recipe(str(self.folder / RECIPE))

    def tune_recipe(self) -> TuneRecipe:
        return parse(TuneRecipe, read_recipe(str(self.folder / RECIPE)))

    def plan(self) -> dict[str, Any] | None:
        return read_json(self.folder / PLAN) if (self.folder / PLAN).is_file() else None

    def write(self, name: str, text: str) -> None:
        try:
            replace_file(self.folder / name, text.encode())
        except OSError as problem:
            raise self.trouble(name, problem) from None

    def append(self, name: str, line: Mapping[str, Any]) -> None:
        try:
            with open(self.folder / name, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as problem:
            raise self.trouble(name, problem) from None

    def trouble(self, name: str, problem: BaseException) -> UserError:
        """One line for what went wrong, and for what was not lost."""
        said = problem.strerror if isinstance(problem, OSError) and problem.strerror else first_line(problem)
        said = said.rsplit(": ", 1)[-1] if isinstance(problem, UserError) else said
        return UserError(f"cannot write {self.folder / name}: {said}; {self.intact()}")

    def intact(self) -> str:
        """What a run that breaks off can go on from."""
        last = self.latest()
        return f"the last checkpoint, {last.name}, is intact" if last else "no checkpoint was written yet"

    # metrics

    def start_metrics(self, step: int) -> None:
        """Open the metrics for what comes after this step: lines of steps that were lost are dropped, and those that
        the beginning and the end of a run write each time."""
        path = self.folder / METRICS
        if path.exists():
            kept = []
            for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
                try:
                    said = json.loads(line)
                    if said["step"] <= step and step and said["kind"] != "final":
                        kept.append(line)
                except (ValueError, KeyError):  # the last line of a killed process
                    break
            self.write(METRICS, "".join(kept))
        try:
            self._metrics = open(path, "a", encoding="utf-8")  # noqa: SIM115
        except OSError as problem:
            raise self.trouble(METRICS, problem) from None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:  # the lines above are the record; the board is for looking at
            return
        with contextlib.suppress(OSError):
            self.board = SummaryWriter(str(self.folder / "tensorboard"), purge_step=step + 1 if step else 0)

    def log(self, line: Mapping[str, Any]) -> None:
        assert self._metrics is not None, "start_metrics comes first"
        try:
            self._metrics.write(json.dumps(line) + "\n")
            self._metrics.flush()
        except OSError as problem:
            raise self.trouble(METRICS, problem) from None
        try:
            for name, value in flat(line).items() if self.board is not None else ():
                self.board.add_scalar(name, value, line["step"])
        except OSError:  # the lines are the record
            self.board = None

    # checkpoints

    def checkpoints(self) -> list[Path]:
        return sorted(path for path in (self.folder / "checkpoints").glob("step-*") if path.is_dir())

    def latest(self) -> Path | None:
        for before in (self.folder / "checkpoints").glob(".step-*.before"):
            unswap(before.with_name(before.name.removeprefix(".").removesuffix(".before")))
        found = self.checkpoints()
        return found[-1] if found else None

    def save(
        self,
        step: int,
        model: tuple[ModelConfig, tuple[HeadConfig, ...], dict[str, Tensor]],
        tokenizer: Tokenizer,
        optimizer: dict[str, Tensor],
        state: Mapping[str, Any],
        keep: int,
        taught: Taught | None = None,
    ) -> Path:
        """A checkpoint appears whole, in one moment; only then do the oldest go."""
        final = self.folder / "checkpoints" / f"step-{step:08d}"
        partial = final.with_name(f".{final.name}.partial")
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            save_state(*model, partial)
            tokenizer.save(partial)
            if taught is not None:
                write_taught(partial, taught)
            save_file(optimizer, partial / "optimizer.safetensors")
            replace_file(partial / "state.json", json.dumps(state, indent=1).encode())
            for file in partial.iterdir():
                with open(file, "rb") as handle:
                    os.fsync(handle.fileno())
            swap(partial, final)
        except (OSError, SafetensorError, UserError) as problem:
            shutil.rmtree(partial, ignore_errors=True)
            raise self.trouble(f"checkpoints/{final.name}", problem) from None
        for old in self.checkpoints()[:-keep]:
            shutil.rmtree(old, ignore_errors=True)
        return final

    def finish(
        self,
        model: tuple[ModelConfig, tuple[HeadConfig, ...], dict[str, Tensor]],
        tokenizer: Tokenizer,
        taught: Taught | None = None,
        name: str = MODEL,
    ) -> Path:
        """The finished model; it too appears in one moment."""
        final, partial = self.folder / name, self.folder / f".{name}.partial"
        try:
            shutil.rmtree(partial, ignore_errors=True)
            save_state(*model, partial)
            tokenizer.save(partial)
            if taught is not None:
                write_taught(partial, taught)
            swap(partial, final)
        except (OSError, UserError) as problem:
            shutil.rmtree(partial, ignore_errors=True)
            raise self.trouble(name, problem) from None
        return final


def read_checkpoint(folder: Path) -> tuple[ModelConfig, dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
    """Config, weights, moments and the rest of the state."""
    config, _ = read_our_config(folder)
    try:
        weights, moments = (load_file(folder / name) for name in ("model.safetensors", "optimizer.safetensors"))
    except (OSError, SafetensorError) as problem:
        raise UserError(
            f"{folder} cannot be read: {first_line(problem)}; remove it to go on from the one before"
        ) from None
    return config, weights, moments, read_json(folder / "state.json")


def differences(
    ours: Recipe | TuneRecipe, theirs: Recipe | TuneRecipe, but: Container[str] = frozenset(HOW)
) -> list[str]:
    """Settings that differ, as `section.key`, `but` for some keys: those that do not decide the result."""
    a, b = (flat(asdict(recipe), plain=False) for recipe in (ours, theirs))
    return [key for key in sorted({*a, *b}) if a.get(key) != b.get(key) and key.split(".")[-1] not in but]


def flat(table: Mapping[str, Any], plain: bool = True, above: str = "") -> dict[str, Any]:
    """Nested tables as one, names joined by dots; `plain` leaves out what is not a number."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, plain, f"{name}.")
        elif not plain or (isinstance(value, int | float) and not isinstance(value, bool) and key != "step"):
            found[name] = value
    return found
