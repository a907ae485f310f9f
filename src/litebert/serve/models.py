"""`NAME=PATH` or a folder -> models by name, what each can be asked, and the work itself."""

import json
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from litebert.config import UserError
from litebert.infer.model import Model, load
from litebert.serve.asks import ASKS
from litebert.serve.limits import Refused

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Group:
    """What items must share to go through a model together."""

    model: str
    ask: str
    options: tuple[tuple[str, Any], ...]


def named(said: str) -> tuple[str, str]:
    """A name and a path.

    >>> named("reviews=runs/mine"), named("runs/mine/")
    (('reviews', 'runs/mine'), ('mine', 'runs/mine/'))
    """
    name, equals, path = said.partition("=")
    if not equals or Path(said).is_dir():
        name, path = Path(said).resolve().name, said
    if not _NAME.fullmatch(name):
        raise UserError(f"{name!r} cannot name a model; say NAME=PATH with letters, digits, '_', '.' and '-'")
    return name, path


def load_all(said: Sequence[str], device: torch.device | str = "cpu", precision: str | None = None) -> dict[str, Model]:
    """In a thread of its own. Loading multiplies, and a thread that does so keeps helpers for as long as it lives.
    Beside those of the thread that answers they are more than there are cores, and then OpenMP's helpers no longer look
    out for work but sleep after each product: an eighth of the throughput."""
    with ThreadPoolExecutor(1) as once:
        return once.submit(_load_all, said, device, precision).result()


def _load_all(said: Sequence[str], device: torch.device | str, precision: str | None) -> dict[str, Model]:
    found: dict[str, Model] = {}
    for name, path in map(named, said):
        if name in found:
            raise UserError(f"two models are called {name!r}; give each its own name by NAME=PATH")
        model = load(path, device=str(device), precision=precision)
        model.network.eval()
        if model.tokenizer is None:
            raise UserError(f"{path} has no tokenizer beside it; put spiece.model, vocab.txt or tokenizer.json there")
        found[name] = model
    return found


def asks_of(model: Model) -> list[str]:
    return [name for name, ask in ASKS.items() if ask.can(model)]


def pick(models: Mapping[str, Model], ask: str, name: str | None) -> str:
    """The model that was named; or the first that can answer this."""
    able = [each for each, model in models.items() if ASKS[ask].can(model)]
    if name is not None and name not in models:
        raise Refused(404, "no_such_model", f"no model {name!r}; there are: {', '.join(models)}")
    if not able:
        offered = "; ".join(f"{each} ({', '.join(asks_of(model))})" for each, model in models.items())
        raise Refused(422, "wrong_model", f"no model here has a head to {ask}; there are, and can be asked: {offered}")
    if name is not None and name not in able:
        raise Refused(422, "wrong_model", f"{name} has no head to {ask}; those that have: {', '.join(able)}")
    return able[0] if name is None else name


def group_of(models: Mapping[str, Model], ask: str, body: Mapping[str, Any]) -> Group:
    """Which model is asked what, after checking that the depth is one it has."""
    name = pick(models, ask, body["model"])
    passes, trained = body.get("passes"), models[name].config.layers
    if passes is not None and passes > trained:
        raise Refused(422, "invalid", f"passes = {passes} is beyond the {trained} that {name} was trained with")
    return Group(name, ask, tuple((option, body[option]) for option in ASKS[ask].options))


def run(models: Mapping[str, Model], group: Group, items: list[Any]) -> list[str]:
    """The answers, as JSON."""
    found = ASKS[group.ask].run(models[group.model], items, dict(group.options))
    return [json.dumps(answer, allow_nan=False) for answer in found]


def describe(name: str, model: Model) -> dict[str, Any]:
    """What a client has to know of a model."""
    assert model.tokenizer is not None
    mask, task = model.tokenizer.roles["mask"], model.taught.task if model.taught else None
    return {
        "name": name,
        "asks": asks_of(model),
        "family": model.config.family,
        "task": None if task is None else task.kind,
        "labels": [] if task is None else list(task.labels),
        "mask": None if mask is None else model.tokenizer.piece(mask),
        "layers": model.config.layers,
        "heads": model.config.heads,
        "positions": model.config.positions,
        "dial": model.config.one_layer,  # whether `passes` is a choice
    }
