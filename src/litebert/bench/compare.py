"""`litebert compare`: several models measured in turns in one process, and the memory of each in one of its own.

The encoder alone runs, without heads, on made-up pieces: as many for every model, so that a tokenizer that needs more
pieces for the same text is not seen here.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from litebert.bench.infer import in_process, resident
from litebert.bench.timing import interleaved, machine
from litebert.config import UserError
from litebert.files import read_json
from litebert.infer.model import Model, find, load
from litebert.infer.quick import place
from litebert.model.weights import CHECKPOINTS
from litebert.report.compare import BATCH, Measured
from litebert.tasks.metrics import Score

LENGTH = 128
Say = Callable[[str], object]


def measure(
    models: Mapping[str, str],
    scores: Mapping[str, tuple[Score, ...]],
    length: int | None = None,
    rounds: int = 5,
    precision: str | None = None,
    gpu: bool = False,
    say: Say = lambda _: None,
) -> tuple[list[Measured], dict[str, Any]]:
    """A row a model, and what the rows have in common."""
    loaded = {}
    for name, word in models.items():
        say(f"loading {name}")
        loaded[name] = load(word, precision=precision)
    length = pick_length(loaded, length)
    cpu = {batch: _times(loaded, batch, length, rounds, torch.device("cpu"), say) for batch in (1, BATCH)}
    on_gpu: dict[int, dict[str, float]] = {}
    if gpu:
        there = {name: load(word) for name, word in models.items()}
        for model in there.values():
            place(model.network, "cuda", torch.bfloat16)
        on_gpu = {batch: _times(there, batch, length, 4 * rounds, torch.device("cuda"), say) for batch in (1, BATCH)}
    found, notes = [], set[str]()
    for name, model in loaded.items():
        say(f"memory of {name}")
        memory, note = peak_memory(models[name], precision, length)
        notes |= {note} - {""}
        found.append(
            Measured(
                name=name,
                model=models[name],
                family=model.config.family,
                sharing=model.config.sharing,
                parameters=parameters(models[name]) if precision else _count(model),
                bytes=stored_bytes(models[name]),
                stored=str(model.stored).removeprefix("torch."),
                cpu_ms=1e3 * cpu[1][name],
                cpu_per_second=BATCH / cpu[BATCH][name],
                gpu_ms=1e3 * on_gpu[1][name] if gpu else None,
                gpu_per_second=BATCH / on_gpu[BATCH][name] if gpu else None,
                memory_bytes=memory,
                scores=scores.get(name, ()),
            )
        )
    if len({each.stored for each in found}) > 1:
        notes.add("the weights are stored in different types, which the bytes on disk show too")
    common = {"length": length, "rounds": rounds, "precision": precision or "float32", "notes": sorted(notes)}
    return found, common | machine() | ({"device": torch.cuda.get_device_name()} if gpu else {})


def pick_length(models: Mapping[str, Model], length: int | None) -> int:
    """What was said, or as usual but no more than every model takes."""
    name, most = min(((name, model.config.positions) for name, model in models.items()), key=lambda pair: pair[1])
    if length is not None and length > most:
        raise UserError(f"--length {length} does not fit the {most} positions of {name}; give at most {most}")
    return min(LENGTH, most) if length is None else length


def _times(
    models: Mapping[str, Model], batch: int, length: int, rounds: int, device: torch.device, say: Say
) -> dict[str, float]:
    """Median seconds of a batch, the models taking turns."""
    say(f"{device.type}: {batch} × {length} pieces, {', '.join(models)}")
    work = {name: _work(model, batch, length, device) for name, model in models.items()}
    with torch.inference_mode():
        return interleaved(work, rounds * 4 if batch == 1 else rounds, warm_up=2 if batch == 1 else 1)


def _work(model: Model, batch: int, length: int, device: torch.device) -> Callable[[], Tensor]:
    encoder, known = model.encoder.eval(), model.config.vocab_size
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(min(5, known - 1), known, (batch, length), generator=generator).to(device)

    def run() -> Tensor:
        states: Tensor = encoder(ids)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return states

    return run


def _count(model: Model) -> int:
    return sum(each.numel() for each in model.network.parameters())


def parameters(word: str) -> int:
    """Of a model whose own were packed away."""
    return _count(load(word))


def stored_bytes(word: str) -> int:
    """Of the files that hold a model's weights."""
    folder = find(word)
    name = next(each for each in CHECKPOINTS if (folder / each).is_file())
    files = set(read_json(folder / name)["weight_map"].values()) if name.endswith(".index.json") else {name}
    return sum((folder / file).stat().st_size for file in files)


def peak_memory(word: str, precision: str | None, length: int) -> tuple[int | None, str]:
    """In a process of its own; where that cannot be measured, why."""
    try:
        return in_process(resident, word, precision, ((1, length), (BATCH, length)), True), ""
    except UserError as problem:
        return None, f"memory was not measured: {problem}"
