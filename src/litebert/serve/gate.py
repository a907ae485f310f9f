"""The gate before the application: who may come in, how large and how slow a request may be, and how many at once.

It is plain ASGI. A request that passes is read whole, within the bounds on its size and time, before the application
sees it; a client that goes away takes its request with it.
"""

import asyncio
import hashlib
import hmac
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from litebert.serve.limits import Limits, Refused

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LEFT = 8  # times the largest body: what is read and dropped of one that is too large, so that its client hears why


class Gone(Exception):  # noqa: N818
    """The client went away."""


class Gate:
    """Counts who is inside, and turns away what is too much."""

    def __init__(
        self,
        app: App,
        limits: Limits,
        key: str | None = None,
        tell: Callable[[str, int, float], object] = lambda path, status, seconds: None,
    ) -> None:
        self.app, self.limits, self.tell = app, limits, tell
        self.key = None if key is None else _digest(key.encode())
        self.inside = 0
        self.clients: Counter[str] = Counter()
        self.stopping = False

    @property
    def full(self) -> bool:
        return self.inside >= self.limits.queue

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def out(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.stopping:
                    message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
            async with asyncio.timeout(self.limits.seconds):  # for a client that does not take its answer
                await send(message)

        try:
            await self._admit(scope, receive, out)
        except (Gone, TimeoutError):
            return
        finally:
            self.tell(scope["path"], status, time.perf_counter() - start)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        asks = scope["method"] == "POST" and scope["path"].startswith("/v1/")
        try:
            self._check(scope, asks)
        except Refused as problem:
            await self._drop(receive)
            await refuse(problem, send)
            return
        if not asks:
            await self.app(scope, receive, send)
            return
        client = (scope.get("client") or ("",))[0]
        self.inside += 1
        self.clients[client] += 1
        try:
            body = await self._body(scope, receive)
            await self._answer(scope, body, receive, send)
        except Refused as problem:
            await refuse(problem, send)
        finally:
            self.inside -= 1
            self.clients[client] -= 1
            self.clients += Counter()  # forget those with nothing inside

    def _check(self, scope: Scope, asks: bool) -> None:
        path, headers = scope["path"], dict(scope["headers"])
        if self.key is not None and (path.startswith("/v1/") or path == "/metrics"):
            given = headers.get(b"authorization", b"").removeprefix(b"Bearer ")
            if not hmac.compare_digest(_digest(given), self.key):
                raise Refused(401, "no_key", "this server wants its key, as the header Authorization: Bearer KEY")
        if not asks:
            return
        if self.stopping:
            raise Refused(503, "stopping", "the server is stopping; ask another, or again later")
        if self.full:
            raise Refused(503, "full", f"{self.inside} requests are inside, and more are not taken; ask again later")
        client, most = (scope.get("client") or ("",))[0], self.limits.per_client
        if most and self.clients[client] >= most:
            raise Refused(429, "too_many", f"{most} requests of yours are inside; wait for an answer to one of them")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        most = self.limits.body
        large = Refused(413, "too_large", f"the body has more than {most} bytes; send fewer or shorter texts at a time")
        said = dict(scope["headers"]).get(b"content-length", b"0")
        if said.isdigit() and len(said) < 20 and int(said) > LEFT * most:
            raise large
        read, parts = 0, []
        try:
            async with asyncio.timeout(self.limits.seconds):
                async for part in _parts(receive):
                    read += len(part)
                    if read > LEFT * most:
                        raise large
                    if read <= most:
                        parts.append(part)
        except TimeoutError:
            raise Refused(
                408, "too_slow", f"the body did not arrive in {self.limits.seconds:g} seconds; send it faster"
            ) from None
        if read > most:
            raise large
        return b"".join(parts)

    async def _drop(self, receive: Receive) -> None:
        """Read what a refused client still sends, within bounds: closing on it would hide the reason from it."""
        read = 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                async for part in _parts(receive):
                    read += len(part)
                    if read > LEFT * self.limits.body:
                        return
        except TimeoutError:
            return

    async def _answer(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """The application at work; it is called off if the client goes."""
        given = False

        async def replay() -> Message:
            nonlocal given
            if given:
                await asyncio.Event().wait()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        work, left = asyncio.ensure_future(self.app(scope, replay, send)), asyncio.ensure_future(gone())
        try:
            await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise Gone
            work.result()
        finally:
            for task in (work, left):
                task.cancel()
            await asyncio.gather(work, left, return_exceptions=True)


async def _parts(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        more = message.get("more_body", False)
        yield message.get("body", b"")


async def refuse(problem: Refused, send: Send) -> None:
    body = problem.body()
    headers = problem.headers() | {"content-length": str(len(body))}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _digest(key: bytes) -> bytes:
    """Of one length, so that comparing takes the same time whatever was sent."""
    return hashlib.sha256(key).digest()
