"""Models and limits -> the ASGI application: routes, OpenAPI, errors, the page. Needs `litebert[serve]`."""

import asyncio
import json
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any

from litebert import __version__
from litebert.config import UserError
from litebert.infer.model import Model
from litebert.serve.asks import ASKS, size
from litebert.serve.batcher import Batcher, Failed, Job
from litebert.serve.bodies import bodies, replies
from litebert.serve.gate import Gate
from litebert.serve.limits import Limits, Refused
from litebert.serve.metrics import Metrics
from litebert.serve.models import describe, group_of, run

PAGE = {  # path: file, type
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/draw.js": ("draw.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
ONLY_OURS = {  # the page loads nothing from elsewhere, and nothing that a text says can become code
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
ERRORS = {
    401: "The server wants a key.",
    404: "No such model.",
    408: "The body arrived too slowly.",
    413: "The body is too large.",
    422: "The request is not one that can be answered; the message says why.",
    429: "Too many requests of this client are inside.",
    500: "A fault of the server's; it is logged.",
    503: "The server is full or stopping.",
}


class Service:
    """The application with its gate and its batcher."""

    def __init__(self, models: Mapping[str, Model], limits: Limits, key: str | None = None) -> None:
        try:
            import fastapi  # noqa: F401
            import prometheus_client  # noqa: F401
            import uvicorn  # noqa: F401
        except ImportError:
            raise UserError("serving needs FastAPI; install it with: pip install 'litebert[serve]'") from None
        self.models, self.limits = models, limits
        self.metrics = Metrics(lambda: self.gate.inside, lambda: len(self.batcher.waiting))
        self.batcher = Batcher(partial(run, models), limits.pieces, limits.wait / 1000, self.metrics.ran)
        self.gate = Gate(build_app(self), limits, key, self._tell)
        self.batcher.start()

    def _tell(self, path: str, status: int, seconds: float) -> None:
        ask = path.removeprefix("/v1/")
        if path.startswith("/v1/") and ask in ASKS:
            self.metrics.answered(ask, status, seconds)

    async def answer(self, ask: str, body: Mapping[str, Any]) -> tuple[bytes, float]:
        """The reply's body, and the seconds that the model took."""
        group = group_of(self.models, ask, body)
        items = ASKS[ask].items(body)
        words = max((len(" ".join(item)) for item in items if ask == "tag" and not isinstance(item, str)), default=0)
        if words > self.limits.text:
            raise Refused(422, "invalid", f"words of {words} characters together; at most {self.limits.text} are taken")
        job = Job(group=group, items=items, pieces=sum(map(size, items)))
        try:
            done = await asyncio.wrap_future(self.batcher.submit(job))
        except UserError as problem:
            raise Refused(422, "invalid", str(problem)) from None
        except Failed as problem:
            raise Refused(500, "failed", str(problem)) from None
        name = json.dumps(group.model)
        return f'{{"model": {name}, "answers": [{", ".join(done.answers)}]}}'.encode(), done.seconds


def build_app(service: Service) -> Any:
    from fastapi import FastAPI, Response

    app = FastAPI(
        title="litebert",
        version=__version__,
        description="Fill masks, classify, tag, answer, choose and embed, as the heads of the served models allow.",
        docs_url=None,
        redoc_url=None,
    )
    shapes, answers = bodies(service.limits), replies()
    errors = {status: {"model": answers["error"], "description": says} for status, says in ERRORS.items()}
    for ask in ASKS:
        route = ask_route(service, ask, shapes[ask])
        offered = any(ASKS[ask].can(model) for model in service.models.values())
        replied = {200: {"model": answers[ask]}}
        plain: Any = {"response_class": Response, "include_in_schema": offered}  # what no model can is refused in words
        app.post(f"/v1/{ask}", summary=ASKS[ask].says, responses=errors | replied, **plain)(route)

    async def models() -> Any:
        return reply({"models": [describe(name, model) for name, model in service.models.items()]})

    told = {200: {"model": answers["models"]}, 401: errors[401]}
    says = "The models, and what each can be asked."
    app.get("/v1/models", summary=says, responses=told, response_class=Response)(models)
    watch_routes(app, service)
    page_routes(app)
    error_handlers(app)
    return app


def ask_route(service: Service, ask: str, shape: Any) -> Callable[..., Any]:
    from fastapi import Response

    async def route(body: Any) -> Any:
        content, seconds = await service.answer(ask, body.model_dump())
        timing = {"server-timing": f"model;dur={1000 * seconds:.2f}"}
        return Response(content, media_type="application/json", headers=timing)

    route.__annotations__["body"] = shape
    route.__name__ = ask
    return route


def watch_routes(app: Any, service: Service) -> None:
    """For those who look after the server."""
    from fastapi import Response

    async def health() -> Any:
        alive = service.batcher.thread.is_alive()
        return reply({"alive": alive}, 200 if alive else 503)

    async def ready() -> Any:
        takes = not (service.gate.stopping or service.gate.full)
        return reply({"ready": takes}, 200 if takes else 503)

    async def metrics() -> Any:
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    busy: dict[int | str, Any] = {503: {"description": "It does not."}}
    no_key: dict[int | str, Any] = {401: {"description": ERRORS[401]}}
    plain: Any = {"response_class": Response}
    app.get("/health", summary="Whether the process works.", responses=busy, **plain)(health)
    app.get("/ready", summary="Whether it takes requests now.", responses=busy, **plain)(ready)
    app.get("/metrics", summary="Counters for Prometheus.", responses=no_key, **plain)(metrics)


def page_routes(app: Any) -> None:
    folder = files("litebert.serve") / "page"
    for path, (name, kind) in PAGE.items():
        content = (folder / name).read_bytes()
        app.get(path, include_in_schema=False)(partial(_page, content, kind))


async def _page(content: bytes, kind: str) -> Any:
    from fastapi import Response

    return Response(content, media_type=kind, headers=ONLY_OURS)


def error_handlers(app: Any) -> None:
    """Every error in one shape, with nothing of what was sent but names of fields."""
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException

    async def refused(_: Any, problem: Refused) -> Any:
        return said(problem)

    async def invalid(_: Any, problem: Any) -> Any:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])[:100]
        return said(Refused(422, "invalid", f"{where or 'the body'}: {first['msg']}"))

    async def plain(_: Any, problem: Any) -> Any:
        if problem.status_code == 400:  # what FastAPI says of a body that is not UTF-8, or no JSON that Python reads
            return said(Refused(422, "invalid", "the body: not JSON in UTF-8"))
        words = {404: "no_such_page", 405: "wrong_method"}
        return said(Refused(problem.status_code, words.get(problem.status_code, "http"), str(problem.detail)))

    async def fault(_: Any, problem: Exception) -> Any:
        return said(Refused(500, "failed", "a fault of the server's; its log says more"))

    handlers = {Refused: refused, RequestValidationError: invalid, HTTPException: plain, Exception: fault}
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def said(problem: Refused) -> Any:
    from fastapi import Response

    return Response(problem.body(), problem.status, problem.headers())


def reply(value: Any, status: int = 200) -> Any:
    from fastapi import Response

    return Response(json.dumps(value), status, media_type="application/json")
