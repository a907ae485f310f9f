"""`litebert bench pretrain`: pieces a second of a whole training step, ours and `transformers`' ALBERT on one text.

Ours is what `litebert pretrain` runs: batches made from the shards by other processes while the device works, packed
rows, LAMB, clipping, figures counted. The peer is `AlbertForPreTraining` under bf16 autocast with PyTorch's attention
kernels, fused AdamW and clipping, as it comes and compiled whole; its batches, padded to the length, lie ready on the
device. Each side runs at the best of the batch sizes tried. Only real pieces count, on both sides.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from litebert.bench.peer import transformers, wait
from litebert.config import ModelConfig, UserError, preset
from litebert.corpus.batches import Stream, batches
from litebert.corpus.shards import read_manifest
from litebert.model.cost import training_flops
from litebert.model.heads import Network
from litebert.model.published import publish
from litebert.model.weights import build
from litebert.recipe import DataConfig, OptimizerConfig, Phase, Recipe, RunConfig
from litebert.text.tokenizer import Tokenizer
from litebert.train.growth import with_layers
from litebert.train.objective import pretraining_heads
from litebert.train.peak import peak_rate
from litebert.train.pretrain import KERNELS, work_of
from litebert.train.processes import Processes
from litebert.train.schedule import stages
from litebert.train.session import Session
from litebert.train.start import resolve
from litebert.train.steps import take_steps
from litebert.train.supply import first_places, updates
from litebert.train.totals import Totals
from litebert.train.trainee import Snapshot, Trainee, assemble

FORMULA = (
    "3·(pieces·(2·E·H + L·2·(4·H² + 2·H·F)) + L·4·H·Σ length² + masked·2·(H·E + E·V)); litebert's less "
    "3·(pieces - masked - sequences)·2·(H² + 2·H·F), which it does not compute in the last layer"
)
BATCHES = {  # to try: ours, the peer's, the peer's compiled
    "albert-base": ((128, 256), (128, 256), (128, 256)),
    "albert-large": ((128, 256), (64, 128), (64, 128)),
    "albert-xxlarge": ((32, 64), (32, 64), (32, 64)),
}
WARM = 12  # steps, so that whatever compiles, plans or records has done so
KEPT = 8  # batches of the peer that lie on the device
Runner = Callable[[int], tuple[float, float]]  # so many steps -> pieces and FLOPs


def bench_pretrain(
    shards: str,
    models: Sequence[str],
    length: int = 512,
    steps: int = 8,
    rounds: int = 3,
    sizes: Sequence[int] = (),
    peer: bool = True,
    workers: int = 4,
    device: str = "cuda",
    profile: bool = False,
    passes: int = 0,
    capture: bool = True,
    say: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    here = torch.device(device)
    if here.type == "cuda" and not torch.cuda.is_available():
        raise UserError("bench pretrain measures a CUDA device and there is none here; --device cpu to see it run")
    read_manifest(Path(shards))
    rows: list[dict[str, Any]] = []
    kernels: dict[str, list[dict[str, Any]]] = {}
    for name in models:
        config = with_layers(preset(name), passes)
        tried = (tuple(sizes),) * 3 if sizes else BATCHES.get(name, ((16, 32),) * 3)
        with sdpa_kernel(KERNELS, set_priority=True):
            sides = _sides(name, config, shards, length, tried, peer, workers, capture, here, say)
            peak, found = _measure(sides, here, steps, rounds)
            if profile:
                kernels[name] = _profile(sides["litebert"][1], here)
        for side, (batch, runner) in sides.items():
            rate, share = found[side][0], found[side][1] / peak
            ratio = found["litebert"][0] / rate
            row = {"model": name, "side": side, "batch": batch, "pieces_per_second": rate, "share_of_peak": share}
            rows.append(row | {"litebert_is_times": ratio, "matmul_flops": peak})
            runner.close()
        sides.clear()
        _clear(here)
    version = transformers().__version__ if peer else None
    name = torch.cuda.get_device_name() if here.type == "cuda" else "cpu"
    found_all = {"bench": "pretrain", "device": name, "torch": torch.__version__, "transformers": version}
    return found_all | {"length": length, "flops": FORMULA, "rows": rows, "kernels": kernels}


class Ours:
    """The real loop without its directory."""

    def __init__(
        self,
        config: ModelConfig,
        shards: str,
        length: int,
        batch: int,
        workers: int,
        capture: bool,
        device: torch.device,
    ) -> None:
        processes = Processes(device)
        recipe = resolve(
            Recipe(
                model=config,
                data=DataConfig(shards=shards),
                phases=(Phase(length=length, batch=batch, rate=1e-4),),
                optimizer=OptimizerConfig(),
                run=RunConfig(steps=1 << 20, workers=workers, micro_batch=batch, capture="auto" if capture else "off"),
            ),
            processes,
        )
        session = Session(recipe, Tokenizer.load(f"{shards}/tokenizer"), processes, None, lambda _: None)
        heads = pretraining_heads(recipe.model, recipe.data)
        weights = dict(build(recipe.model, heads, 0).state_dict())
        start = Snapshot(recipe.model, heads, weights, {}, 0)
        self.trainee: Trainee = assemble(start, recipe.optimizer, recipe.run, processes)
        self.plan = stages(recipe.phases, recipe.run.steps)
        self.recipe, self.totals = recipe, Totals(processes, None, 1.0)
        self.feed = updates(session, self.plan[0], self.plan, 0, first_places(self.plan[0], self.plan, {}))
        self.steps = take_steps(self.feed, self.trainee.optimizer, work_of(session, self.trainee, self.plan[0]))

    def __call__(self, count: int) -> tuple[float, float]:
        pieces = flops = 0.0
        for made in islice(self.steps, count):
            parts = [part.micro.packed for part in made.update.parts]
            self.totals.add(made.done, parts, self.recipe, self.recipe.model.layers)
            pieces, flops = self.totals.fresh[0], self.totals.fresh[1]
        self.totals.line(1, self.plan[0], self.plan, 0.0, "order")
        return pieces, flops

    def close(self) -> None:
        self.feed.close()


class Peer:
    """`AlbertForPreTraining` with the same weights' shapes and the same examples."""

    def __init__(
        self, config: ModelConfig, shards: str, length: int, batch: int, compiled: bool, device: torch.device
    ) -> None:
        library = transformers()
        config = replace(config, vocab_size=len(Tokenizer.load(f"{shards}/tokenizer")))
        settings = publish_config(config)
        theirs = library.AlbertConfig(**settings, attn_implementation="sdpa")
        self.model = library.AlbertForPreTraining(theirs).to(device).train()
        self.call = torch.compile(self.model, dynamic=False) if compiled else self.model  # code for just this size
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
        self.device, self.config = device, config
        self.batches = list(_padded(shards, length, batch, device))
        self.turn = 0

    def __call__(self, count: int) -> tuple[float, float]:
        pieces = flops = 0.0
        for _ in range(count):
            inputs, counted = self.batches[self.turn % len(self.batches)]
            self.turn += 1
            with torch.autocast(self.device.type, torch.bfloat16):
                loss = self.call(**inputs).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            pieces += counted[0]
            flops += training_flops(self.config, self.config.layers, *counted)
        return pieces, flops

    def close(self) -> None:
        self.batches.clear()


def _padded(
    shards: str, length: int, batch: int, device: torch.device
) -> Iterator[tuple[dict[str, Tensor], tuple[int, int, int]]]:
    """The peer's inputs, padded to the length, and what they hold: pieces, squares, masked."""
    stream = Stream(shards, DataConfig(shards=shards).examples(length), batch)
    with closing(batches(stream)) as source:
        for made, _ in islice(source, KEPT):
            held = (int(made.lengths.sum()), int((made.lengths.astype(int) ** 2).sum()), len(made.labels))
            ids, types, mask = (torch.zeros(batch, length, dtype=torch.long) for _ in range(3))
            labels = torch.full((batch, length), -100)
            width = made.input_ids.shape[1]
            ids[:, :width] = torch.from_numpy(made.input_ids).long()
            types[:, :width] = torch.from_numpy(made.token_type_ids).long()
            mask[:, :width] = torch.from_numpy(made.attention_mask).long()
            rows, columns = (torch.from_numpy(part) for part in (made.positions // width, made.positions % width))
            labels[rows, columns] = torch.from_numpy(made.labels).long()
            order = torch.from_numpy(made.pair_labels)
            inputs = {
                "input_ids": ids,
                "token_type_ids": types,
                "attention_mask": mask,
                "labels": labels,
                "sentence_order_label": order,
            }
            yield {name: part.to(device) for name, part in inputs.items()}, held


def publish_config(config: ModelConfig) -> dict[str, Any]:
    """Its settings under the peer's names."""
    with torch.device("meta"):
        network = Network(config)
    published = publish(config, (), dict(network.state_dict())).config
    ours = ("architectures", "dtype", "torch_dtype", "model_type")
    return {key: value for key, value in published.items() if key not in ours}


def _sides(
    name: str,
    config: ModelConfig,
    shards: str,
    length: int,
    tried: Sequence[Sequence[int]],
    peer: bool,
    workers: int,
    capture: bool,
    device: torch.device,
    say: Callable[[str], object],
) -> dict[str, tuple[int, Any]]:
    """Each side at the best of the batch sizes, warm."""
    makers: dict[str, tuple[Sequence[int], Callable[[int], Any]]] = {
        "litebert": (tried[0], lambda batch: Ours(config, shards, length, batch, workers, capture, device))
    }
    if peer:
        makers["transformers"] = (tried[1], lambda batch: Peer(config, shards, length, batch, False, device))
        makers["transformers compiled"] = (tried[2], lambda batch: Peer(config, shards, length, batch, True, device))
    found: dict[str, tuple[int, Any]] = {}
    for side, (sizes, make) in makers.items():
        best: tuple[float, int, Any] | None = None
        for batch in sizes:
            say(f"{name}: {side}, batch {batch}")
            made = rate = None
            held = torch.cuda.memory_allocated() / 2**30 if device.type == "cuda" else 0.0
            try:
                made = make(batch)
                made(WARM)
                rate = _rate(made, device, 3)[0]
            except torch.OutOfMemoryError:
                say(f"{name}: {side}, batch {batch}: out of memory beside {held:.1f} GiB that others keep")
            loser = made
            if rate is not None and (best is None or rate > best[0]):
                loser, best = (best[2] if best else None), (rate, batch, made)
                say(f"{name}: {side}, batch {batch}: {rate:,.0f} pieces a second")
            if loser is not None:
                loser.close()
            made = loser = None
            _clear(device)
        if best is None:
            raise UserError(f"{side} fits at none of the batch sizes {list(sizes)}; give smaller ones by --batch")
        found[side] = best[1], best[2]
    return found


def _rate(runner: Runner, device: torch.device, steps: int) -> tuple[float, float]:
    wait(device)
    start = time.perf_counter()
    pieces, flops = runner(steps)
    wait(device)
    seconds = time.perf_counter() - start
    return pieces / seconds, flops / seconds


def _measure(
    sides: dict[str, tuple[int, Any]], device: torch.device, steps: int, rounds: int
) -> tuple[float, dict[str, tuple[float, float]]]:
    """In turns, so that a device that grows hot is hot for all; the matmul rate among them."""
    precision = torch.bfloat16 if device.type == "cuda" else torch.float32
    peaks, rates = [], {side: [] for side in sides}  # type: ignore[var-annotated]
    for turn in range(rounds):
        peaks.append(peak_rate(device, precision))
        for side in sides if turn % 2 == 0 else reversed(sides):
            rates[side].append(_rate(sides[side][1], device, steps))
    medians = {
        side: (statistics.median(rate for rate, _ in each), statistics.median(flops for _, flops in each))
        for side, each in rates.items()
    }
    return statistics.median(peaks), medians


def _profile(runner: Any, device: torch.device, steps: int = 3) -> list[dict[str, Any]]:
    """Where the device's time goes, by kernel."""
    from torch.profiler import ProfilerActivity, profile

    cuda = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as seen:
        begun = time.perf_counter()
        runner(steps)
        wait(device)
        passed = time.perf_counter() - begun
    events = [(each.self_device_time_total if cuda else each.self_cpu_time_total, each) for each in seen.key_averages()]
    whole = sum(spent for spent, _ in events) or 1.0
    best = sorted(events, key=lambda pair: -pair[0])[:25]
    busy = {"kernel": "(device busy, of the wall time)", "share": whole / 1e6 / passed, "calls": 0}
    return [busy] + [{"kernel": each.key, "share": spent / whole, "calls": each.count / steps} for spent, each in best]


def _clear(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
