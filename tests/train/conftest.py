"""Small runs: a corpus in four pieces of text, a model of thirty-two units, and the recipe that trains it."""

import json
import os
import signal
import socket

import pytest
import torch
from safetensors.torch import load_file

from litebert.recipe import apply_sets
from litebert.train import finetune
from litebert.train.pretrain import pretrain
from litebert.train.processes import joined
from litebert.train.stopping import Stopped
from tests import forked
from tests.corpus.conftest import corpus, tokenizer

__all__ = ["corpus", "tokenizer"]

MODEL = {
    "family": "albert",
    "embedding_size": 16,
    "hidden_size": 32,
    "ffn_size": 64,
    "layers": 4,
    "heads": 4,
    "positions": 64,
    "init_std": 0.1,
}


@pytest.fixture(scope="session")
def shards(corpus):
    return corpus("unigram", "en", 300, 0.1)


@pytest.fixture
def table(shards):
    """table(model={…}, run={…}): a recipe as TOML would have it."""

    def make(phases=None, **sections):
        base = {
            "model": MODEL,
            "data": {"shards": str(shards)},
            "phases": phases or [{"length": 32, "batch": 8, "rate": 0.01, "warmup": 3}],
            "optimizer": {},
            "run": {"steps": 20, "workers": 0, "log_every": 5, "save_every": 10},
            "evaluate": {"every": 0, "examples": 32, "final_examples": 32},
        }
        return base | {name: base.get(name, {}) | values for name, values in sections.items()}

    return make


@pytest.fixture
def train(tmp_path, table):
    """train(run={…}): a finished run's folder and the lines it told."""
    number = 0

    def run(folder=None, resume=False, phases=None, **sections):
        nonlocal number
        number += 1
        folder = folder or tmp_path / f"run-{number}"
        told = []
        with joined("cpu") as processes:
            pretrain(apply_sets(table(phases, **sections), []), folder, resume, processes, told.append)
        return folder, told

    return run


def weights(folder):
    """The model that a run ended with."""
    return load_file(folder / "model" / "model.safetensors")


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def gap(one, other):
    return max((a.double() - b.double()).abs().max().item() for a, b in zip(one.values(), other.values(), strict=True))


def metrics(folder):
    """The lines of a run without what a clock says."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "time"} for line in lines]


@pytest.fixture
def interrupted(monkeypatch):
    """interrupted(module, 'name', 7, work): what `work` does until the eighth call of that function asks it to stop."""

    def run(module, name, calls, work):
        original, count = getattr(module, name), iter(range(10_000))

        def interrupt(*args):
            if next(count) == calls:
                os.kill(os.getpid(), signal.SIGTERM)
            return original(*args)

        with monkeypatch.context() as patch:
            patch.setattr(module, name, interrupt)
            with pytest.raises(Stopped) as stopped:
                work()
        return stopped.value

    return run


@pytest.fixture
def killed_at_second_look(monkeypatch):
    """killed_at_second_look(work): fine-tuning that dies when it has scored the dev set for the second time."""

    def run(work):
        real, looks = finetune.look, []

        def breaks(seat, progress):
            real(seat, progress)
            looks.append(progress.step)
            if len(looks) == 2:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(finetune, "look", breaks)
            with pytest.raises(KeyboardInterrupt):
                work()

    return run


@pytest.fixture
def together(tmp_path):
    """together(work, 'name', 2, …): how each of two processes ends, and what it says. They are told what torchrun
    would tell them, and forked from one that has imported everything: torchrun, and each import, take seconds."""
    context = forked.context()

    def run(work, name, count, *words):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        started = []
        for rank in range(count):
            own, said = shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, tmp_path / f"{name}-{rank}.txt"
            process = context.Process(target=work, args=(own, str(said), *words))
            process.start()
            started.append((process, said))
        try:
            for process, _ in started:
                process.join(120)
            return [(process.exitcode, said.read_text()) for process, said in started]
        finally:
            for process, _ in started:
                process.kill()
                process.join()

    return run
