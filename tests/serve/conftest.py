"""A toy model of every kind of head, and a server of them: inside the test's process, or a process of its own."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from litebert.config import HeadConfig, Reading
from litebert.infer.model import load
from litebert.model.weights import build
from litebert.tasks.example import Task
from litebert.tasks.taught import Taught
from tests.toys import toy_model

PAIR = ("bad", "good")
TAGS = ("O", "B-LOC")
HEADS = {  # name of the model: its task, its head
    "filler": (None, HeadConfig(kind="mlm")),
    "classify": (Task(kind="classify", labels=PAIR), HeadConfig(kind="classify", labels=PAIR)),
    "several": (Task(kind="several", labels=PAIR), HeadConfig(kind="classify", labels=PAIR, several=True)),
    "regress": (Task(kind="regress"), HeadConfig(kind="regress")),
    "tag": (Task(kind="tag", labels=TAGS), HeadConfig(kind="tag", labels=TAGS)),
    "answer": (Task(kind="answer"), HeadConfig(kind="span")),
    "unsure": (Task(kind="answer", unanswerable=True), HeadConfig(kind="span-beam")),
    "choice": (Task(kind="choice"), HeadConfig(kind="choice")),
}


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """The folder of an ALBERT of four passes for every kind of head: taught nothing, but it says something."""
    pytest.importorskip("fastapi", reason="pip install 'litebert[serve]'")
    made = {}
    for name, (task, head) in HEADS.items():
        folder = toy_model(tmp_path_factory.mktemp("models") / name, "albert", layers=4)
        model = load(folder)
        network = build(model.config, (head,), 1)
        network.encoder.load_state_dict(model.encoder.state_dict())
        taught = None if task is None else Taught(task, Reading(length=48, question_length=16, stride=8))
        replace(model, network=network, taught=taught).save(folder)
        made[name] = folder
    return made


@pytest.fixture(scope="session")
def models(folders):
    return {name: load(folder) for name, folder in folders.items()}


class Here:
    """A service in this process, asked without a network."""

    def __init__(self, service):
        self.service = service

    def client(self):
        httpx = pytest.importorskip("httpx", reason="pip install httpx")
        transport = httpx.ASGITransport(self.service.gate, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://here")

    def send(self, method, path, **more):
        async def go():
            async with self.client() as client:
                return await client.request(method, path, **more)

        return asyncio.run(go())

    def get(self, path, **more):
        return self.send("GET", path, **more)

    def ask(self, name, **body):
        return self.send("POST", f"/v1/{name}", json=body)

    def at_once(self, asks):
        """Many requests in the same moment: (name, body) each."""

        async def go():
            async with self.client() as client:
                return await asyncio.gather(*(client.post(f"/v1/{name}", json=body) for name, body in asks))

        return asyncio.run(go())


@pytest.fixture(scope="session")
def here(models):
    """here(limit=…): a service of all the toys with these limits."""
    from litebert.serve.app import Service
    from litebert.serve.limits import Limits

    made = []

    def make(key=None, served=None, **limits):
        made.append(Service(served or models, Limits(**limits), key))
        return Here(made[-1])

    yield make
    for service in made:
        service.batcher.stop()


@contextlib.contextmanager
def process(*words, variables=None):
    """`litebert serve …` in a process of its own: the process and its address."""
    command = [sys.executable, "-m", "litebert", "serve", *map(str, words), "--port", "0", "--device", "cpu"]
    started = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"} | (variables or {}),
    )
    said = []
    try:
        for line in started.stdout:
            said.append(line)
            if found := re.search(r"serving at (http://\S+)", line):
                break
        else:
            raise AssertionError("".join(said))
        yield started, found[1]
    finally:
        if started.poll() is None:
            started.send_signal(signal.SIGKILL)
        started.wait()
        started.stdout.close()


def until(true, seconds=20.0):
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
    return found
