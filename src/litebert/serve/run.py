"""A service -> a listening process that stops gracefully. Needs `litebert[serve]`.

At the first SIGTERM or Ctrl-C it takes no more requests (503), finishes those inside, and goes when they are answered;
at the second it goes at once.
"""

import socket
import time
from typing import Any

from litebert.config import UserError
from litebert.serve.app import Service
from litebert.serve.limits import Refused

LINGER = 0.5  # seconds after the last answer, in which clients hear that the server is stopping instead of nothing


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as problem:
        why = (getattr(problem, "strerror", None) or str(problem)).partition(" (while")[0]
        raise UserError(f"cannot listen on {host} port {port}: {why}; choose another by --port or --host") from None
    # Who is accepted inherits it. asyncio sets it on sockets that name TCP, and these do not: the end of an answer
    # would wait until the client has acknowledged its head, forty milliseconds.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(service: Service, listening: socket.socket) -> None:
    """Until it is told to stop."""
    import uvicorn

    config = uvicorn.Config(
        service.gate,
        http=prompt_protocol(service.limits.seconds),
        ws="none",
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_keep_alive=max(1, min(5, round(service.limits.seconds))),
        timeout_graceful_shutdown=max(1, round(service.limits.seconds)),
        backlog=2048,
    )
    server = uvicorn.Server(config)
    stop_gracefully(server, service)
    server.run([listening])
    service.batcher.stop()


def stop_gracefully(server: Any, service: Service) -> None:
    tick, idle_since = server.on_tick, 0.0

    def handle_exit(number: int, frame: object) -> None:
        server.force_exit = server.should_exit = service.gate.stopping
        service.gate.stopping = True

    async def on_tick(counter: int) -> bool:
        nonlocal idle_since
        now = time.monotonic()
        if not service.gate.stopping or service.gate.inside:
            idle_since = now
        return bool(await tick(counter)) or now - idle_since > LINGER

    server.handle_exit, server.on_tick = handle_exit, on_tick


def prompt_protocol(seconds: float) -> Any:
    """uvicorn's HTTP, with a bound on the time that the head of a request may take to arrive."""
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    late = Refused(408, "too_slow", f"the request's head did not arrive in {seconds:g} seconds")

    class Prompt(H11Protocol):  # type: ignore[misc]
        head_timer: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.watch_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.watch_head()

        def connection_lost(self, problem: Exception | None) -> None:
            super().connection_lost(problem)
            self.forget_head()

        def watch_head(self) -> None:
            if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
                self.forget_head()
            elif self.head_timer is None and self.timeout_keep_alive_task is None:
                self.head_timer = self.loop.call_later(seconds, self.head_is_late)

        def forget_head(self) -> None:
            if self.head_timer is not None:
                self.head_timer.cancel()
                self.head_timer = None

        def head_is_late(self) -> None:
            self.head_timer = None
            if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
                body = late.body()
                head = f"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
                self.transport.write(head.encode() + b"\r\nconnection: close\r\n\r\n" + body)
                self.transport.close()

    return Prompt
