"""`litebert bench hostile`: malformed and hostile requests, drawn by a seed, against a server in its own process.

Every one of them must get an answer below 500, the documented 503, or a closed connection; and when they are through,
the server must answer a good request as before, with nothing left inside.
"""

import asyncio
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from litebert.bench.server import Address, post, read_reply, server
from litebert.config import UserError

PATIENCE = 1.0  # seconds that the server gives a request to arrive
STUCK = 30.0  # seconds without an answer
ODD = (
    "😀👩‍👩‍👧‍👦",
    "\u200b\u200d\ufeff",
    "\u202eabc\u202c",
    "\x00\x01\x7f",
    "e\u0301\u0327" * 9,
    "ﷺ" * 30,
    "𝔘𝔫𝔦",
    "\U0010ffff",
    "\u2028",
)
BODIES = {  # good ones, of the asks that take no texts
    "answer": '"question": "who ?", "passage": "it was ann"',
    "choose": '"passage": "it was ann", "options": ["ann", "bob"]',
    "look": '"text": "it was ann"',
}
Parts = list[tuple[float, bytes]]  # seconds to wait, then what to send


def bench_hostile(
    model: str,
    requests: int = 10_000,
    connections: int = 16,
    seed: int = 0,
    say: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """How many requests of each kind got which status (0: closed without one)."""
    rng = random.Random(seed)
    with server([f"hostile={model}", "--seconds", str(PATIENCE)]) as address:
        asks = asyncio.run(offered(address))
        good = post("/v1/embed", {"texts": ["a good text"]})
        before = asyncio.run(exchange(address, [(0.0, good)]))
        drawn = [draw(rng, asks) for _ in range(requests)]
        start = time.perf_counter()
        found = asyncio.run(send_all(address, drawn, connections, say))
        seconds = time.perf_counter() - start
        after = asyncio.run(exchange(address, [(0.0, good)]))
        inside = asyncio.run(left_inside(address))
    table: dict[str, Counter[str]] = {}
    for (kind, _), status in zip(drawn, found, strict=True):
        table.setdefault(kind, Counter())[str(status)] += 1
    return {
        "bench": "hostile",
        "requests": requests,
        "seed": seed,
        "seconds": seconds,
        "statuses": dict(sorted(Counter(map(str, found)).items())),
        "kinds": {kind: dict(sorted(row.items())) for kind, row in sorted(table.items())},
        "server_errors": sum(status >= 500 and status != 503 for status in found),
        "stuck": sum(status < 0 for status in found),
        "left_inside": inside,
        "answers_as_before": before == after == 200,
    }


async def offered(address: Address) -> list[str]:
    """What the server says that it can be asked."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(b"GET /v1/models HTTP/1.1\r\nhost: bench\r\n\r\n")
    _, body = await read_reply(reader)
    writer.close()
    found: list[str] = json.loads(body)["models"][0]["asks"]
    return found


async def left_inside(address: Address) -> int:
    """Requests that the server still counts, after a while for those whose client went."""
    left = 0
    for _ in range(50):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: bench\r\n\r\n")
        _, body = await read_reply(reader)
        writer.close()
        count = re.search(rb"^litebert_requests_inside ([\d.]+)", body, re.MULTILINE)
        if count is None:
            raise UserError("the server's metrics do not say how many requests are inside")
        left = int(float(count[1]))
        if not left:
            break
        await asyncio.sleep(0.1)
    return left


async def send_all(
    address: Address, drawn: Sequence[tuple[str, Parts]], connections: int, say: Callable[[str], object]
) -> list[int]:
    found, left = [0] * len(drawn), iter(enumerate(drawn))

    async def client() -> None:
        for number, (_, parts) in left:
            found[number] = await exchange(address, parts)
            if number % 1000 == 999:
                say(f"{number + 1:,} of {len(drawn):,}")

    await asyncio.gather(*(client() for _ in range(connections)))
    return found


async def exchange(address: Address, parts: Parts) -> int:
    """The status of the answer; 0: the connection was closed without one; -1: nothing came."""
    try:
        reader, writer = await asyncio.open_connection(address.host, address.port)
    except OSError:
        return 0
    sending = asyncio.ensure_future(send(writer, parts))  # beside reading: the answer may come before the last byte
    try:
        async with asyncio.timeout(STUCK):
            line = await reader.readline()
            return int(line.split(b" ")[1]) if line.startswith(b"HTTP/1.1 ") else 0
    except TimeoutError:
        return -1
    except (OSError, IndexError, ValueError):
        return 0
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.close()


async def send(writer: asyncio.StreamWriter, parts: Parts) -> None:
    for pause, data in parts:
        await asyncio.sleep(pause)
        writer.write(data)
        await writer.drain()


def draw(rng: random.Random, asks: Sequence[str]) -> tuple[str, Parts]:
    """One request: its kind, and what is sent when."""
    path = f"/v1/{rng.choice(list(asks))}"
    kind = rng.choices(list(KINDS), [weight for _, weight in KINDS.values()])[0]
    return kind, KINDS[kind][0](rng, path)


def raw(path: str, body: bytes, *, length: int | None = None, more: str = "") -> bytes:
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {size}\r\n{more}\r\n"
    return head.encode() + body


def wrap(text: str) -> bytes:
    """A body with a text that is JSON already, or meant to be."""
    return f'{{"texts": [{text}]}}'.encode()


def garbage(rng: random.Random, path: str) -> Parts:
    return [(0.0, raw(path, rng.randbytes(rng.randint(0, 400))))]


def bad_utf8(rng: random.Random, path: str) -> Parts:
    broken = rng.choice([b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc0\xaf"])
    return [(0.0, raw(path, b'{"texts": ["a ' + broken + b' [MASK]"]}'))]


def surrogates(rng: random.Random, path: str) -> Parts:
    lone = rng.choice(["\\ud800", "\\udfff x", "a \\ud83d [MASK]", "\\udc00\\ud800"])
    where = rng.choice(
        ['{"texts": ["%s"]}', '{"%s": 1}', '{"texts": ["[MASK]"], "model": "%s"}', '{"question": "%s", "passage": "a"}']
    )
    return [(0.0, raw(path, (where % lone).encode()))]


def odd_texts(rng: random.Random, path: str) -> Parts:
    text = "".join(rng.choice([*ODD, " [MASK] ", "word "]) for _ in range(rng.randint(0, 30)))
    shapes: list[Any] = [{"texts": [text, ""]}, {"texts": [[text, text]]}, {"question": text, "passage": text}]
    shapes += [
        {"passage": text, "options": [text, "", text]},
        {"text": text},
        {"texts": [text], "passes": rng.randint(1, 3)},
    ]
    return [(0.0, post(path, rng.choice(shapes)))]


def wrong_values(rng: random.Random, path: str) -> Parts:
    """A good request but for one field."""
    values = ["NaN", "-Infinity", "1e999", "9" * 5000, "-1", "0", "null", "true", "[]", "{}", '"5"', "1.5", "10" * 9]
    fields = ["texts", "top", "passes", "settle", "from_passes", "model", "layers", "length", "layer", "head", "pool"]
    body = BODIES.get(path.removeprefix("/v1/"), '"texts": ["a [MASK]"]')
    return [(0.0, raw(path, f'{{{body}, "{rng.choice(fields)}": {rng.choice(values)}}}'.encode()))]


def deep(rng: random.Random, path: str) -> Parts:
    depth = rng.choice([100, 5_000, 200_000])
    opened, closed = rng.choice([("[", "]"), ('{"texts":', "}")])
    return [(0.0, raw(path, wrap(opened * depth + rng.choice(["", closed * depth]))))]


def long_words(rng: random.Random, path: str) -> Parts:
    size = rng.choice([9_000, 10_000, 10_001, 100_000, 1_000_000])
    text = rng.choice(["a", "é", "😀", "\u200b", "[MASK]"]) * size
    return [(0.0, raw(path, wrap(json.dumps(text[:size], ensure_ascii=False))))]


def oversize(rng: random.Random, path: str) -> Parts:
    size = rng.choice([1 << 20, (1 << 20) + 1, 3 << 20])
    if rng.random() < 0.5:
        return [(0.0, raw(path, b" " * size, length=rng.choice([size, 10**12])))]
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    part = b"10000\r\n" + b" " * 65536 + b"\r\n"
    return [(0.0, head.encode() + part * (size // 65536 + 1) + b"0\r\n\r\n")]


def slow(rng: random.Random, path: str) -> Parts:
    request = post(path, {"texts": ["a slow text [MASK]"]})
    cut = rng.randrange(1, len(request) - 1)
    return [(0.0, request[:cut]), *[(PATIENCE / 3, request[cut : cut + 1])] * 5]


def pipelined(rng: random.Random, path: str) -> Parts:
    """Several in a row without waiting, the last one cut; the client leaves after the first answer."""
    request = post(path, {"texts": ["a text [MASK]"] * 4})
    return [(0.0, request * rng.randint(1, 4) + request[: rng.randrange(len(request))])]


def bad_http(rng: random.Random, path: str) -> Parts:
    return [(0.0, rng.choice([
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n" * 50 + b"x\r\n\r\n",
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n".encode(),
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdef".encode(),
        f"POST {path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".encode(),
        f"POST {path} HTTP/1.1\r\nhost: x\r\nx: {'y' * 100_000}\r\n\r\n".encode(),
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: \xff;a\r\ncontent-length: 2\r\n\r\n{{}}".encode("latin-1"),
    ]))]  # fmt: skip


def bad_paths(rng: random.Random, path: str) -> Parts:
    method = rng.choice(["GET", "PUT", "DELETE", "OPTIONS", "HEAD", "POST", "BREW"])
    where = rng.choice(
        [
            path,
            "/../../etc/passwd",
            "/page/%2e%2e/x",
            "/%ff%00",
            "/v1/",
            "/v1/nothing",
            "/metrics",
            "//",
            "*",
            "/?a=%ff",
            "/openapi.json",
        ]
    )
    return [(0.0, f"{method} {where} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())]


def good(rng: random.Random, path: str) -> Parts:
    body = BODIES.get(path.removeprefix("/v1/"), '"texts": ["a good [MASK]"]')
    return [(0.0, raw(path, f"{{{body}}}".encode()))]


KINDS: dict[str, tuple[Callable[[random.Random, str], Parts], float]] = {  # how each is made, how often it comes
    "garbage": (garbage, 1),
    "bad UTF-8": (bad_utf8, 1),
    "lone surrogates": (surrogates, 1),
    "odd texts": (odd_texts, 2),
    "wrong values": (wrong_values, 2),
    "deep JSON": (deep, 0.3),
    "long words": (long_words, 0.5),
    "oversize": (oversize, 0.3),
    "slow senders": (slow, 0.1),
    "pipelined": (pipelined, 0.5),
    "bad HTTP": (bad_http, 1),
    "bad paths": (bad_paths, 1),
    "good": (good, 1),
}
