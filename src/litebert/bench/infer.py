"""`litebert bench infer`: an encoder on a CPU, ours beside onnxruntime, each in a process of its own, in turns, and in
another in each round.

The peer is `transformers`' model of the same weights, exported by PyTorch and run by onnxruntime: as it is, and in its
dynamic int8 once the weights' transposes are folded (else int8 gains nothing on ALBERT); and a BERT of the same size in
that int8. Idle sides wait without using a core; the side that runs has all threads.
"""

import logging
import multiprocessing
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from litebert.bench.peer import transformers
from litebert.bench.timing import machine
from litebert.config import ModelConfig, UserError, preset
from litebert.export.onnx import write_network
from litebert.infer.cpu import WITH_WHOLE_SUMS, finest, has_bf16
from litebert.infer.loop import open_session
from litebert.infer.model import Model, load
from litebert.infer.quick import PRECISIONS
from litebert.model.packing import pack
from litebert.model.weights import build, export_network
from litebert.train.peak import peak_rate

SHAPES = ((1, 16), (1, 128), (8, 128))
RAGGED = (32, 8, 128)
WORK = (
    (8, 16),
    (8, 64),
    (16, 128),
)  # after which memory is looked at: the last as large as `litebert serve` makes them
LEAST = 0.4  # seconds that a side runs in a round
Work = Callable[[], Any]


@dataclass(frozen=True)
class Side:
    """Something that encodes: a model's folder or an ONNX file."""

    name: str
    path: str
    precision: str = ""  # "": an ONNX file, run by onnxruntime
    other: bool = False  # another model than the rest
    threads: int = 1


def bench_infer(
    model: str = "albert-base",
    beside: str = "bert-base",
    rounds: int = 5,
    seed: int = 0,
    say: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """A row a shape and side: milliseconds, and how much faster we are than each."""
    if min(preset(model).positions, preset(beside).positions) < RAGGED[2]:
        raise UserError(f"{model} or {beside} has fewer than the {RAGGED[2]} positions that this bench needs")
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        say("writing the files")
        sides = prepare(model, beside, Path(folder), threads, seed)
        rows, differences = measure(sides, preset(model).vocab_size, rounds, seed, say)
        say("memory")
        memory = in_process(resident, str(Path(folder) / "ours"))
    return {
        "bench": "infer",
        "model": model,
        "beside": beside,
        "peer": f"onnxruntime {import_module('onnxruntime').__version__}, transformers {transformers().__version__}",
        "rounds": rounds,
        "rows": rows,
        "differences": differences,  # of the last states at (1, 16), from our float32
        "memory_int8_bytes": memory,
        "matmul_gflops": peak_rate(torch.device("cpu"), torch.float32, size=1536) / 1e9,
        "whole_sums": finest() == WITH_WHOLE_SUMS,
    } | machine()


def prepare(model: str, beside: str, folder: Path, threads: int, seed: int) -> list[Side]:
    """Writes what the sides read."""
    transformers("onnxruntime", "onnxscript")
    network = build(preset(model), (), seed).eval()
    Model(network=network).save(folder / "ours")
    (folder / "ours.onnx").write_bytes(write_network(network, False, False))
    (folder / "ours-int8.onnx").write_bytes(write_network(network, False, True))
    in_process(write_peers, {"theirs": network, "beside": build(preset(beside), (), seed).eval()}, str(folder))
    ours, int8 = str(folder / "ours"), f"onnxruntime int8, {beside}"
    can = [each for each in PRECISIONS if each != "bf16" or has_bf16()]
    return [
        *(Side(f"litebert {each}", ours, each, threads=threads) for each in can),
        Side("litebert ONNX", str(folder / "ours.onnx"), threads=threads),
        Side("litebert ONNX int8", str(folder / "ours-int8.onnx"), threads=threads),
        Side("onnxruntime fp32", str(folder / "theirs.onnx"), threads=threads),
        Side("onnxruntime int8", str(folder / "theirs-int8.onnx"), threads=threads),
        Side(int8, str(folder / "beside-int8.onnx"), other=True, threads=threads),
    ]


def write_peers(networks: dict[str, Any], folder: str) -> None:
    """In a process of its own: PyTorch's exporter and the quantiser have much to say of themselves."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    for name, network in networks.items():
        write_peer(network, folder, name)


def write_peer(network: Any, folder: str, name: str) -> None:
    """`transformers`' model of these weights as NAME.onnx, and in onnxruntime's dynamic int8 as NAME-int8.onnx."""
    library, onnx = transformers("onnxscript"), import_module("onnx")
    library.utils.logging.disable_progress_bar()
    where = Path(folder)
    export_network(network, where / name)
    model = library.AutoModel.from_pretrained(where / name, attn_implementation="sdpa").eval()
    model.pooler = None  # no side pools
    ids = torch.randint(5, 50, (2, 16))
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    program = torch.onnx.export(
        model, kwargs=given, dynamo=True, dynamic_shapes=dict.fromkeys(given, sizes), verbose=False
    )
    assert program is not None
    program.save(where / f"{name}.onnx")
    read = onnx.load(where / f"{name}.onnx")
    fold(read.graph, onnx.numpy_helper)
    onnx.save(read, where / f"{name}-folded.onnx")
    quantisation = import_module("onnxruntime.quantization")
    source, target = where / f"{name}-folded.onnx", where / f"{name}-int8.onnx"
    quantisation.quantize_dynamic(source, target, weight_type=quantisation.QuantType.QInt8)


def fold(graph: Any, helper: Any) -> None:
    """Turn the weights themselves where a node turns them."""
    weights = {each.name: each for each in graph.initializer}
    for node in [each for each in graph.node if each.op_type == "Transpose" and each.input[0] in weights]:
        axes = next(list(each.ints) for each in node.attribute if each.name == "perm")
        turned = np.ascontiguousarray(helper.to_array(weights[node.input[0]]).transpose(axes))
        graph.initializer.append(helper.from_array(turned, node.output[0]))
        graph.node.remove(node)
    read = {name for node in graph.node for name in node.input}
    for each in [each for each in graph.initializer if each.name not in read]:
        graph.initializer.remove(each)


def measure(
    sides: Sequence[Side], pieces: int, rounds: int, seed: int, say: Callable[[str], object]
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    cases = make_cases(pieces, seed)
    times: dict[tuple[str, str], list[float]] = {}
    states: dict[str, Any] = {}
    for number in range(rounds):
        workers = {side: Worker(side) for side in sides}  # anew: where its memory comes to lie makes a process quick
        try:
            for worker in workers.values():
                worker.ready()
            for case in cases:
                ways = [(side, False) for side in sides]
                if not case.mask.all():  # ours as well given padding, as others need it
                    ways += [(side, True) for side in sides if side.precision]
                for side, padded in ways if number % 2 == 0 else reversed(ways):
                    say(f"round {number + 1}, {case.name}, {side.name}")
                    found, seconds = workers[side].ask(case.ids, case.mask, padded)
                    name = f"{side.name}, padded" if padded else side.name
                    times.setdefault((case.name, name), []).append(seconds)
                    if case is cases[0] and not side.other:
                        states[side.name] = found
        finally:
            for worker in workers.values():
                worker.close()
    rows = [{"shape": shape, "side": side, "ms": 1e3 * median(found)} for (shape, side), found in times.items()]
    exact = states["litebert fp32"]
    return rows, {name: float(np.abs(each - exact).max()) for name, each in states.items()}


@dataclass(frozen=True)
class Case:
    """A batch."""

    name: str
    ids: Any
    mask: Any


def make_cases(pieces: int, seed: int) -> list[Case]:
    rng = np.random.default_rng(seed)
    batch, shortest, longest = RAGGED
    shapes = {f"({batch}, {length})": [length] * batch for batch, length in SHAPES}
    shapes[f"ragged ({batch}, {shortest} to {longest})"] = rng.integers(shortest, longest + 1, batch).tolist()
    cases = []
    for name, lengths in shapes.items():
        mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
        cases.append(Case(name, rng.integers(5, pieces, mask.shape) * mask, mask))
    return cases


class Worker:
    """A side in a process of its own."""

    def __init__(self, side: Side) -> None:
        context, self.name = multiprocessing.get_context("spawn"), side.name
        self.end, other = context.Pipe()
        self.process = context.Process(target=serve, args=(side, other), daemon=True)
        self.process.start()
        other.close()

    def ready(self) -> None:
        """Waits until it is: while others still load, nobody is timed."""
        self.hear()

    def ask(self, ids: Any, mask: Any, padded: bool) -> tuple[Any, float]:
        """What it says of a batch, and the seconds that takes."""
        with suppress(OSError):  # it has ended, and `hear` says so
            self.end.send((ids, mask, padded))
        found: tuple[Any, float] = self.hear()
        return found

    def hear(self) -> Any:
        try:
            return self.end.recv()
        except (EOFError, OSError):
            raise UserError(f"the side {self.name} of the bench failed; its own words are above") from None

    def close(self) -> None:
        with suppress(OSError):  # it may have ended by itself
            self.end.send(None)
        self.process.join(30)


def serve(side: Side, end: Any) -> None:
    torch.set_num_threads(side.threads)
    build_work = ours(side) if side.precision else theirs(side)
    end.send("ready")
    while (words := end.recv()) is not None:
        work = build_work(*words)
        end.send((np.asarray(work()), timed(work)))


def timed(work: Work) -> float:
    """Seconds a call: the median of as many as fit, three at least."""
    found: list[float] = []
    while len(found) < 3 or sum(found) < LEAST:
        start = perf_counter()
        work()
        found.append(perf_counter() - start)
    return median(found)


def ours(side: Side) -> Callable[[Any, Any, bool], Work]:
    encoder = load(side.path, precision=side.precision).encoder

    def case(ids: Any, mask: Any, padded: bool) -> Work:
        given, real = torch.from_numpy(ids), torch.from_numpy(mask)
        types = torch.zeros_like(given)

        @torch.inference_mode()
        def wide() -> Any:
            return encoder(given, real, types).float().numpy()

        @torch.inference_mode()
        def packed() -> Any:  # packing is part of the work, and looking whether there is any
            if real.all():
                return encoder(given, None, types).float().numpy()
            row, boundaries = pack(given, real)
            return encoder(row, None, torch.zeros_like(row), boundaries=boundaries).float().numpy()

        return wide if padded else packed

    return case


def theirs(side: Side) -> Callable[[Any, Any, bool], Work]:
    session = open_session(side.path, side.threads)
    wanted = {each.name for each in session.get_inputs()}

    def case(ids: Any, mask: Any, padded: bool) -> Work:
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        given = {name: value for name, value in given.items() if name in wanted}
        return lambda: session.run(None, given)[0]

    return case


def in_process(work: Callable[..., Any], *words: Any) -> Any:
    """A function in a process of its own, so that nothing of it stays."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(work, words)


def resident(
    folder: str, precision: str | None = "int8", shapes: Sequence[tuple[int, int]] = WORK, peak: bool = False
) -> int:
    """Bytes that a model and its work add to an interpreter whose libraries have done such work before: what is left of
    them afterwards, or the most on the way, loading included."""
    with tempfile.TemporaryDirectory() as small:
        longest = max(length for _, length in shapes)
        tiny = ModelConfig(
            vocab_size=16, embedding_size=8, hidden_size=8, ffn_size=8, layers=1, heads=1, positions=longest
        )
        Model(network=build(tiny, (), 0)).save(small)
        run_through(small, precision, shapes)
    before = status("VmRSS")
    if peak:
        forget_peak()
    kept = run_through(folder, precision, shapes)
    found = status("VmHWM" if peak else "VmRSS") - before
    del kept
    return found


def run_through(folder: str, precision: str | None, shapes: Sequence[tuple[int, int]]) -> Any:
    model = load(folder, precision=precision)
    with torch.inference_mode():
        for batch, length in shapes:
            ids = torch.full((batch, length), min(7, model.config.vocab_size - 1))
            row, boundaries = pack(ids, torch.ones_like(ids))
            model.encoder(row, None, torch.zeros_like(row), boundaries=boundaries)
    return model


def forget_peak() -> None:
    """From here on `VmHWM` is the most since now; Linux."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        raise UserError("the peak memory of a process is reset through /proc, and that cannot be done here") from None


def status(field: str) -> int:
    """Of this process, in bytes; Linux."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        raise UserError("the memory of a process is read from /proc, and there is none here") from None
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
