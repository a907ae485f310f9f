"""What a server takes, and how it says no: `Limits`, and `Refused`, a status with one line."""

import json
from dataclasses import dataclass

from litebert.config import UserError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on what one request, one client and all of them together may cost."""

    body: int = 1 << 20  # bytes of a request
    text: int = 10_000  # characters of a text
    texts: int = 32  # texts of a request, options of a choice
    queue: int = 256  # requests inside at once: being read, waiting or being answered
    per_client: int = 128  # of those, from one address; 0: no bound
    seconds: float = 10.0  # in which a request must have arrived, and its answer have been taken
    wait: float = 2.0  # milliseconds that a request waits for others to go with it
    pieces: int = 2048  # that go through a model together, about

    def __post_init__(self) -> None:
        for name in ("body", "text", "texts", "queue", "pieces"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} = {getattr(self, name)} must be at least 1")
        for name in ("per_client", "wait"):
            if not getattr(self, name) >= 0:
                raise UserError(f"{name} = {getattr(self, name):g} must be at least 0")
        if not 0 < self.seconds < float("inf"):
            raise UserError(f"seconds = {self.seconds:g} must be above 0: the time in which a request must arrive")


class Refused(Exception):  # noqa: N818
    """An answer that is an error: its HTTP status, a word for programs, a line for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code

    def body(self) -> bytes:
        """ASCII only, so whatever a client sent can stand in the message."""
        return json.dumps({"error": {"code": self.code, "message": str(self)}}).encode()

    def headers(self) -> dict[str, str]:
        more = {429: {"retry-after": "1"}, 503: {"retry-after": "1"}, 401: {"www-authenticate": "Bearer"}}
        return {"content-type": "application/json"} | more.get(self.status, {})
