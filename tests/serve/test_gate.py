"""Who comes in and what is turned away: status codes, one shape of error, and every limit a knob that is read."""

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from litebert.config import UserError
from litebert.serve.app import Service
from litebert.serve.limits import Limits
from tests.serve.conftest import until

GOOD = {"texts": ["the film was fine ."]}


def code(found):
    """Its error's word, after looking that it has the one shape errors have."""
    assert set(found.json()) == {"error"}
    assert set(found.json()["error"]) == {"code", "message"}
    assert "\n" not in found.json()["error"]["message"]
    return found.json()["error"]["code"]


class Held:
    """A service whose model waits until it is let go."""

    def __init__(self, server):
        self.server, self.go = server, threading.Event()
        batcher = server.service.batcher
        self.run, batcher.run = batcher.run, self.wait

    def wait(self, group, items):
        assert self.go.wait(30)
        return self.run(group, items)


@pytest.mark.parametrize("body", [
    b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"texts": "one"}', b'{"texts": []}', b'{"texts": [1]}',
    b'{"texts": [null]}',
    b'{"texts": ["a"], "passes": 0}', b'{"texts": ["a"], "passes": 5}', b'{"texts": ["a"], "passes": NaN}',
    b'{"texts": ["a"], "passes": "1"}', b'{"texts": ["a"], "passes": true}', b'{"texts": ["a"], "settle": Infinity}',
    b'{"texts": ["a"], "settle": NaN}', b'{"texts": ["a"], "settle": -1}', b'{"texts": ["a"], "unknown": 1}',
    b'{"texts": ["\\ud800"]}', b'{"texts": [["a \\udfff", "b"]]}', b'{"\\ud800": 1}', b'{"texts": [["a", "b", "c"]]}',
    b'{"texts": ["a"], "passes": ' + b"9" * 5000 + b"}", b'{"texts": ' + b"[" * 100_000,
    b'{"texts": ["a"], "from_passes": 3}',
    b'{"texts": ["a"], "model": "tag"}',
])  # fmt: skip
def test_what_cannot_be_answered_is_422(body, here):
    found = here().send("POST", "/v1/classify", content=body, headers={"content-type": "application/json"})
    assert found.status_code == 422, found.text
    assert code(found) in ("invalid", "wrong_model")


def test_a_body_must_say_that_it_is_json(here):
    """A web page elsewhere can send plain text to this machine, but not JSON without asking."""
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        content = json.dumps(GOOD).encode()
        assert here().send("POST", "/v1/classify", content=content, headers={"content-type": kind}).status_code == 422


def test_other_errors_have_the_same_shape(here):
    server = here()
    assert (server.get("/nowhere").status_code, code(server.get("/nowhere"))) == (404, "no_such_page")
    assert (server.get("/v1/classify").status_code, code(server.get("/v1/classify"))) == (405, "wrong_method")
    assert code(server.ask("classify", model="nobody", **GOOD)) == "no_such_model"


def test_a_fault_of_the_models_is_500_and_the_next_request_is_answered(here, models):
    server = here()
    run = server.service.batcher.run
    server.service.batcher.run = lambda group, items: 1 / 0
    found = server.ask("classify", **GOOD)
    assert (found.status_code, code(found)) == (500, "failed")
    server.service.batcher.run = run
    assert server.ask("classify", **GOOD).status_code == 200


class TestLimits:
    def test_the_body(self, here):
        server = here(body=1000)
        fits = {"texts": ["a" * 900]}
        assert server.ask("classify", **fits).status_code == 200
        for size in (1000, 7000, 20_000):  # over the limit, read and dropped, not even read
            found = server.ask("classify", texts=["a" * size])
            assert (found.status_code, code(found)) == (413, "too_large")

    def test_a_body_that_comes_in_parts_is_counted_as_it_comes(self, here):
        async def parts():
            for _ in range(200):
                yield b" " * 100

        found = here(body=1000).send("POST", "/v1/classify", content=parts())
        assert (found.status_code, code(found)) == (413, "too_large")

    def test_the_text(self, here):
        server = here(text=20)
        for ask, body in (
            ("classify", {"texts": ["a" * 21]}),
            ("classify", {"texts": [["a", "b" * 21]]}),
            ("tag", {"texts": [["a"] * 11]}),
            ("answer", {"question": "who ?", "passage": "a" * 21}),
            ("choose", {"passage": "a", "options": ["a", "b" * 21]}),
        ):
            found = server.ask(ask, **body)
            assert (found.status_code, code(found)) == (422, "invalid"), ask
        assert server.ask("classify", texts=["a" * 20]).status_code == 200
        assert server.ask("answer", question="who wrote it ?", passage="a" * 20).status_code == 200

    def test_the_texts_of_a_request(self, here):
        server = here(texts=2)
        assert server.ask("classify", texts=["a"] * 2).status_code == 200
        assert server.ask("classify", texts=["a"] * 3).status_code == 422
        assert server.ask("choose", passage="a", options=["a"] * 3).status_code == 422

    def test_the_queue(self, here):
        server = here(queue=3, per_client=0, wait=0)
        held = Held(server)
        with ThreadPoolExecutor() as pool:
            taken = [pool.submit(server.ask, "classify", **GOOD) for _ in range(3)]
            until(lambda: server.service.gate.inside == 3)
            found = server.ask("classify", **GOOD)
            assert (found.status_code, code(found), found.headers["retry-after"]) == (503, "full", "1")
            assert server.get("/ready").status_code == 503
            assert server.get("/health").status_code == 200
            held.go.set()
            assert [each.result().status_code for each in taken] == [200] * 3
        assert server.get("/ready").status_code == 200

    def test_one_client_cannot_take_all_the_room(self, here):
        server = here(per_client=2, wait=0)
        held = Held(server)
        with ThreadPoolExecutor() as pool:
            taken = [pool.submit(server.ask, "classify", **GOOD) for _ in range(2)]
            until(lambda: server.service.gate.inside == 2)
            found = server.ask("classify", **GOOD)
            assert (found.status_code, code(found), found.headers["retry-after"]) == (429, "too_many", "1")
            held.go.set()
            assert [each.result().status_code for each in taken] == [200] * 2
        assert server.service.gate.clients == {}

    def test_waiting_gathers_what_comes_apart(self, here):
        """A request that finds nothing to do waits a little, and those that come meanwhile go with it."""
        for wait, batches in ((0, 2), (20_000, 1)):
            server = here(wait=wait, pieces=38)  # the budget is full with the second, so nobody waits that long
            with ThreadPoolExecutor() as pool:
                first = pool.submit(server.ask, "classify", texts=["a film " * 10])
                time.sleep(0.3)
                start = time.monotonic()
                server.ask("classify", texts=["a book " * 10])
                first.result()
                assert time.monotonic() - start < 10
            assert f"litebert_batch_items_count {batches}.0" in server.get("/metrics").text

    def test_the_pieces_of_a_batch(self, here):
        for pieces, batches in ((10, 4), (1000, 1)):
            server = here(pieces=pieces, wait=200)
            server.at_once([("classify", {"texts": ["the film was fine and"]})] * 4)
            assert f"litebert_batch_items_count {batches}.0" in server.get("/metrics").text

    @pytest.mark.parametrize(("knob", "value"), [
        ("body", 0), ("text", 0), ("texts", 0), ("queue", 0), ("pieces", 0), ("per_client", -1), ("wait", -1),
        ("wait", float("nan")), ("seconds", 0), ("seconds", float("inf")),
    ])  # fmt: skip
    def test_a_bound_that_bounds_nothing_is_one_line(self, knob, value):
        with pytest.raises(UserError, match=f"{knob} = .* must be"):
            Limits(**{knob: value})


class TestKey:
    def test_without_the_key_nothing_is_told(self, here):
        server = here(key="geheim-ü")
        for path in ("/v1/models", "/metrics"):
            found = server.get(path)
            assert (found.status_code, code(found), found.headers["www-authenticate"]) == (401, "no_key", "Bearer")
        assert server.ask("classify", **GOOD).status_code == 401
        wrong = {"authorization": "Bearer geheim"}
        assert server.send("POST", "/v1/classify", json=GOOD, headers=wrong).status_code == 401

    def test_with_the_key_all_is_as_without_one(self, here):
        server, given = here(key="geheim-ü"), {"authorization": "Bearer geheim-ü".encode()}
        assert (
            server.send("POST", "/v1/classify", json=GOOD, headers=given).json()
            == here().ask("classify", **GOOD).json()
        )
        assert server.get("/v1/models", headers=given).status_code == 200

    def test_the_page_and_the_probes_need_none(self, here):
        for path in ("/", "/page.js", "/health", "/ready", "/openapi.json"):
            assert here(key="x").get(path).status_code == 200


def test_metrics_count_what_happened(here):
    server = here()
    for _ in range(3):
        server.ask("classify", **GOOD)
    server.ask("classify", texts=[])
    text = server.get("/metrics").text
    assert 'litebert_requests_total{ask="classify",status="200"} 3.0' in text
    assert 'litebert_requests_total{ask="classify",status="422"} 1.0' in text
    assert 'litebert_request_seconds_count{ask="classify"} 4.0' in text
    assert "litebert_requests_inside 0.0" in text
    assert "litebert_batch_seconds_count 3.0" in text


def test_openapi_says_the_limits_that_hold(here):
    found = here(text=77, texts=5).get("/openapi.json").json()
    texts = found["components"]["schemas"]["Fill"]["properties"]["texts"]
    assert (texts["maxItems"], texts["items"]["maxLength"]) == (5, 77)
    assert {"200", "401", "404", "408", "413", "422", "429", "503"} <= set(
        found["paths"]["/v1/fill"]["post"]["responses"]
    )


def test_the_time_of_the_model_is_told_beside_the_answer(here):
    """In a header: the answer itself depends on nothing but the request."""
    server = here()
    one, two = server.ask("classify", **GOOD), server.ask("classify", **GOOD)
    assert one.content == two.content
    assert float(one.headers["server-timing"].removeprefix("model;dur=")) > 0


def test_a_client_that_goes_takes_its_request_with_it(here):
    """What nobody waits for is not computed."""
    import asyncio

    server = here(wait=0)
    held, ran = Held(server), []
    run = server.service.batcher.run
    server.service.batcher.run = lambda group, items: ran.append(items) or run(group, items)

    async def call(text, leave):
        body = json.dumps({"texts": [text]}).encode()
        messages = asyncio.Queue()
        messages.put_nowait({"type": "http.request", "body": body, "more_body": False})
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/classify",
            "raw_path": b"/v1/classify",
            "scheme": "http",
        }
        scope |= {"headers": [(b"content-type", b"application/json")], "query_string": b"", "http_version": "1.1"}
        scope |= {"client": ("a", 1), "server": ("b", 1), "root_path": "", "asgi": {"version": "3.0"}}
        statuses = []

        async def send(message):
            statuses.append(message.get("status"))

        task = asyncio.ensure_future(server.service.gate(scope, messages.get, send))
        if leave:
            await asyncio.sleep(0.1)
            messages.put_nowait({"type": "http.disconnect"})
        return task, statuses

    async def go():
        first, _ = await call("the first", leave=False)
        await asyncio.sleep(0.2)  # the model holds it
        second, statuses = await call("nobody waits", leave=True)
        await second
        held.go.set()
        await first
        return statuses

    assert asyncio.run(go()) == []
    assert server.service.gate.inside == 0
    assert server.ask("classify", texts=["the last"]).status_code == 200
    assert ran == [["the first"], ["the last"]]


@pytest.mark.parametrize("package", ["fastapi", "uvicorn", "prometheus_client"])
def test_a_missing_package_is_one_line_that_names_the_extra(package, models, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=r"serving needs FastAPI; install it with: pip install 'litebert\[serve\]'"):
        Service(models, Limits())
