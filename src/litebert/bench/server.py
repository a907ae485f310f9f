"""`litebert serve` in a process of its own, and the least that it takes to speak HTTP with it."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from litebert.config import UserError


@dataclass(frozen=True)
class Address:
    host: str
    port: int


@contextmanager
def server(words: Sequence[str], variables: dict[str, str] | None = None) -> Iterator[Address]:
    """`litebert serve` with these arguments, on a free port of this machine; it is stopped in the end."""
    command = [sys.executable, "-m", "litebert", "serve", *words, "--port", "0"]
    env = os.environ | {"PYTHONUNBUFFERED": "1"} | (variables or {})
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if found := re.search(r"serving at http://([\d.]+):(\d+)", line):
                    yield Address(found[1], int(found[2]))
                    break
            else:
                raise UserError("the server did not start; what it said stands above")
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                raise UserError("the server did not stop within a minute of being asked to") from None


def post(path: str, body: Any) -> bytes:
    """A whole request, to be sent over and over on one connection."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
    return head.encode() + b"\r\n\r\n" + content


async def read_reply(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The status and the body of one answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = re.search(r"content-length: *(\d+)", head, re.IGNORECASE)
    body = await reader.readexactly(int(length[1])) if length else b""
    return int(head.split(" ", 2)[1]), body
