"""The server as a process: it starts on this machine only, stops without losing a request, no sender holds it up."""

import contextlib
import json
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlparse

import pytest
import torch
from typer.testing import CliRunner

from litebert.cli import app
from litebert.config import UserError
from litebert.serve.models import load_all, named
from litebert.serve.run import listen
from tests.serve.conftest import process, until

httpx = pytest.importorskip("httpx", reason="pip install httpx")
GOOD = {"texts": ["the film was fine ."]}


def connect(address):
    where = urlparse(address)
    made = socket.create_connection((where.hostname, where.port), timeout=20)
    made.settimeout(20)
    return made


def everything(made):
    """All that comes until the other side closes."""
    found = b""
    while part := made.recv(65536):
        found += part
    return found


def request(body, close=True):
    head = f"POST /v1/classify HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return (head + ("connection: close\r\n" if close else "") + "\r\n").encode() + body


class TestStopping:
    def test_what_was_taken_is_answered_when_it_is_told_to_stop_under_load(self, folders):
        """Forty requests that the server has read are waiting when SIGTERM comes: each gets its answer, in full."""
        with process(folders["classify"], "--pieces", 40, "--per-client", 0) as (started, address):
            text = "the film was fine and " * 8
            alone = httpx.post(f"{address}/v1/classify", json={"texts": [text] * 32}).json()
            open_ones = [connect(address) for _ in range(40)]
            for each in open_ones:
                each.sendall(request(json.dumps({"texts": [text] * 32}).encode(), close=False))
            until(lambda: taken(address) == 1 + 40)
            started.send_signal(signal.SIGTERM)
            late = []
            with contextlib.suppress(httpx.TransportError):  # it may have stopped by then
                late.append(httpx.post(f"{address}/v1/classify", json=GOOD))
            replies = [everything(each) for each in open_ones]
            assert started.wait(30) == 0
        for reply in replies:
            head, _, body = reply.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            told = json.loads(body)["answers"]
            assert [each["value"] for each in told] == [each["value"] for each in alone["answers"]]
        assert all(found.json()["error"]["code"] == "stopping" and found.status_code == 503 for found in late)

    def test_under_a_stream_of_requests_each_gets_200_or_503(self, folders):
        """Clients that keep on asking while it stops hear that it is stopping; none is cut off in the middle."""
        with process(folders["classify"], "--per-client", 0) as (started, address):
            statuses, stopped = [], threading.Event()

            def keep_asking():
                with httpx.Client(timeout=20) as client:
                    while not stopped.is_set():
                        try:
                            statuses.append(client.post(f"{address}/v1/classify", json=GOOD).status_code)
                        except httpx.ConnectError:
                            return  # it is gone
                        if statuses[-1] == 503:
                            return

            with ThreadPoolExecutor(8) as pool:
                asking = [pool.submit(keep_asking) for _ in range(8)]
                until(lambda: len(statuses) > 50)
                started.send_signal(signal.SIGTERM)
                for each in asking:
                    each.result(30)
                stopped.set()
            assert started.wait(20) == 0
        assert set(statuses) <= {200, 503}
        assert statuses.count(503) > 0

    def test_it_says_that_it_stopped_well_and_listens_elsewhere_when_told(self, folders):
        with process(folders["classify"], "--host", "0.0.0.0") as (started, address):
            assert urlparse(address).hostname == "0.0.0.0"
            assert httpx.get(address.replace("0.0.0.0", "127.0.0.1") + "/ready").status_code == 200
            started.send_signal(signal.SIGINT)
            assert started.wait(20) == 0
            assert "every request that was taken has its answer" in started.stdout.read()


def inside(address, also="nothing"):
    """Requests that the server has taken and not yet answered; and those that another counter counts."""
    lines = httpx.get(f"{address}/metrics", timeout=20).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(("litebert_requests_inside", also)))


def taken(address):
    return inside(address, 'litebert_requests_total{ask="classify",status="200"}')


@pytest.fixture(scope="module")
def hasty(folders):
    """A server that gives a request half a second to arrive."""
    with process(folders["classify"], "--seconds", 0.5) as (_, address):
        yield address


class TestSlowSenders:
    @pytest.mark.parametrize("sent", [b"", b"POST /v1/cla", b"POST /v1/classify HTTP/1.1\r\nhost: x\r\ncontent-le"])
    def test_a_head_that_does_not_come_is_408(self, sent, hasty):
        with connect(hasty) as made:
            made.sendall(sent)
            start = time.monotonic()
            found = everything(made)
            assert 0.3 < time.monotonic() - start < 5
        assert found.startswith(b"HTTP/1.1 408")
        assert json.loads(found.partition(b"\r\n\r\n")[2])["error"]["code"] == "too_slow"

    def test_a_body_that_drips_is_408(self, hasty):
        body = request(json.dumps(GOOD).encode())
        with connect(hasty) as made:
            made.sendall(body[:-12])
            for byte in body[-12:-9]:
                time.sleep(0.1)
                made.sendall(bytes([byte]))
            found = everything(made)
        assert found.startswith(b"HTTP/1.1 408")
        assert b'"too_slow"' in found

    def test_the_second_request_of_a_connection_has_the_same_time(self, hasty):
        with connect(hasty) as made:
            made.sendall(request(json.dumps(GOOD).encode(), close=False) + b"POST /v1/cl")
            found = everything(made)
        assert found.startswith(b"HTTP/1.1 200")

    def test_meanwhile_others_are_answered(self, hasty):
        slow = [connect(hasty) for _ in range(20)]
        for each in slow:
            each.sendall(b"POST /v1/classify HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        start = time.monotonic()
        assert httpx.post(f"{hasty}/v1/classify", json=GOOD).status_code == 200
        assert time.monotonic() - start < 5
        assert all(everything(each).startswith(b"HTTP/1.1 408") for each in slow)
        until(lambda: inside(hasty) == 0)


class TestCommand:
    def test_several_models_by_name_and_the_key_from_the_environment(self, folders):
        words = (f"one={folders['classify']}", folders["tag"])
        with process(*words, variables={"LITEBERT_API_KEY": "secret"}) as (_, address):
            assert urlparse(address).hostname == "127.0.0.1"
            assert httpx.get(f"{address}/v1/models").status_code == 401
            found = httpx.get(f"{address}/v1/models", headers={"authorization": "Bearer secret"}).json()["models"]
            assert [each["name"] for each in found] == ["one", "tag"]

    def test_a_port_that_is_taken_is_one_line(self, folders):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            with pytest.raises(
                UserError, match=f"cannot listen on 127.0.0.1 port {port}: Address already in use; choose"
            ):
                CliRunner().invoke(app, ["serve", str(folders["tag"]), "--port", port], catch_exceptions=False)

    @pytest.mark.parametrize(("words", "message"), [
        (["nowhere/at/all"], "no folder nowhere/at/all"),
        (["--api-key", ""], "the key is empty"),
        (["--host", "no.such.host.example"], "cannot listen on no.such.host.example port 0"),
        (["--device", "moon"], "moon"),
        (["--queue", "0"], "queue = 0 must be at least 1"),
        (["--per-client", "-1"], "per_client = -1 must be at least 0"),
        (["--body", "0"], "body = 0"), (["--text", "0"], "text = 0"), (["--texts", "0"], "texts = 0"),
        (["--seconds", "0"], "seconds = 0"), (["--wait", "-1"], "wait = -1"), (["--pieces", "0"], "pieces = 0"),
    ])  # fmt: skip
    def test_every_option_is_read_and_a_mistake_is_one_line(self, words, message, folders):
        models = [] if words[0].startswith("nowhere") else [str(folders["tag"])]
        with pytest.raises(UserError, match=message) as problem:
            CliRunner().invoke(app, ["serve", *models, *words, "--port", "0"], catch_exceptions=False)
        assert "\n" not in str(problem.value)

    def test_two_models_of_one_name_are_refused(self, folders):
        with pytest.raises(UserError, match="two models are called 'a'; give each its own name by NAME=PATH"):
            load_all([f"a={folders['tag']}", f"a={folders['classify']}"])
        with pytest.raises(UserError, match="' x' cannot name a model"):
            named(" x=runs/mine")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads as Linux shows them")
def test_loading_leaves_no_helpers_that_would_put_those_of_the_answers_to_sleep(monkeypatch):
    """With more of OpenMP's threads than cores, all of them sleep after each product: an eighth of the throughput."""
    threads, tasks = 7, Path("/proc/self/task")  # more than anything else here has begun

    def multiply(*_):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        torch.rand(800, 800) @ torch.rand(800, 800)
        torch.rand(1 << 22).exp_()
        torch.set_num_threads(before)
        return {"at work": {each.name for each in tasks.iterdir()}}

    monkeypatch.setattr("litebert.serve.models._load_all", multiply)
    before = {each.name for each in tasks.iterdir()}  # some of which may end meanwhile
    helpers = load_all(["any"])["at work"] - before
    assert len(helpers) >= threads
    late = time.monotonic() + 10
    while any((tasks / each).exists() for each in helpers) and time.monotonic() < late:
        time.sleep(0.01)
    assert not [each for each in helpers if (tasks / each).exists()]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_end_of_an_answer_does_not_wait_for_its_head_to_be_acknowledged(host):
    try:
        listening = listen(host, 0)
    except UserError:
        pytest.skip(f"nothing can listen on {host} here")
    with listening, socket.create_connection(listening.getsockname()[:2]):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
