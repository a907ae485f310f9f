"""`Limits` -> the shape of each request and answer, to check what comes in and for OpenAPI. Needs `litebert[serve]`.

The bounds a server was started with stand in its OpenAPI description.
"""

from typing import Annotated, Any, Literal

from litebert.serve.limits import Limits

TOP = 100  # guesses a mask
NUMBERS = 40  # characters that may say which layers


def bodies(limits: Limits) -> dict[str, Any]:
    """A pydantic class for each ask: strict, and with no field it does not know."""
    from pydantic import ConfigDict, Field, create_model

    strict = ConfigDict(extra="forbid", strict=True)
    text = Annotated[str, Field(max_length=limits.text)]
    pair = Annotated[list[text], Field(min_length=2, max_length=2)]
    words = Annotated[list[text], Field(max_length=limits.text)]

    def many(what: Any) -> tuple[Any, Any]:
        return (Annotated[list[what], Field(min_length=1, max_length=limits.texts)], ...)

    depth: Any = (Annotated[int, Field(ge=1)] | None, Field(None, description="Passes of a shared trunk."))
    settle: Any = (
        Annotated[float, Field(gt=0, allow_inf_nan=False)] | None,
        Field(None, description="Stop when a pass changes the answer by at most this."),
    )
    settling = {"settle": settle, "from_passes": (Annotated[int, Field(ge=2)] | None, None)}
    place = (Annotated[int, Field(ge=1)] | None, None)
    fields: dict[str, dict[str, Any]] = {
        "fill": {"texts": many(text), "top": (Annotated[int, Field(ge=1, le=TOP)], 5), "passes": depth},
        "classify": {"texts": many(text | pair), "passes": depth, **settling},
        "tag": {"texts": many(text | words), "passes": depth},
        "answer": {"question": (text, ...), "passage": (text, ...), "passes": depth},
        "choose": {
            "passage": (text, ...),
            "options": (Annotated[list[text], Field(min_length=2, max_length=limits.texts)], ...),
            "passes": depth,
            **settling,
        },
        "embed": {
            "texts": many(text | pair),
            "pool": (Literal["mean", "first", "pooler"], "mean"),
            "layers": (Annotated[str, Field(max_length=NUMBERS)], "last"),
            "length": (Annotated[int, Field(ge=8)] | None, None),
            "normalise": (bool, False),
            "passes": depth,
        },
        "pieces": {"texts": many(text)},
        "look": {"text": (text, ...), "layer": place, "head": place, "passes": depth},
    }
    named = {"model": (Annotated[str, Field(max_length=200)] | None, Field(None, description="One that is served."))}
    return {ask: create_model(ask.capitalize(), __config__=strict, **named, **own) for ask, own in fields.items()}


def replies() -> dict[str, Any]:
    """A pydantic class for what comes back of each ask; and, as `error`, for what comes back instead."""
    from pydantic import ConfigDict, create_model

    closed = ConfigDict(extra="forbid")

    def listed(what: Any) -> Any:
        return list[what]

    def shape(name: str, /, **fields: Any) -> Any:
        return create_model(name, __config__=closed, **{key: (kind, ...) for key, kind in fields.items()})

    value = str | list[str] | float | int
    told = shape("Told", value=value, probability=float | None, probabilities=dict[str, float], start=int | None)
    word = shape("Word", text=str, tag=str, start=int, end=int, probability=float)
    entity = shape("Entity", label=str, text=str, start=int, end=int, probability=float)
    tagged = shape(
        "Tagged", value=list[str], probability=float, probabilities=dict[str, float], start=None,
        words=listed(word), entities=listed(entity),
    )  # fmt: skip
    guess = shape("Guess", piece=str, text=str, probability=float)
    piece = shape("Piece", piece=str, id=int, start=int, end=int, special=bool)
    table = list[list[float]]
    looked = shape(
        "Looked", pieces=list[str], lost=int, layer=int, layers=int, head=int | None, heads=int, attention=table,
        similarity=table,
    )  # fmt: skip
    kinds = {
        "fill": listed(listed(guess)),
        "tag": tagged,
        "embed": list[float],
        "pieces": listed(piece),
        "look": looked,
    }
    asks = ("fill", "classify", "tag", "answer", "choose", "embed", "pieces", "look")
    found = {ask: shape(f"{ask.capitalize()}Reply", model=str, answers=listed(kinds.get(ask, told))) for ask in asks}
    about: dict[str, Any] = {
        "name": str,
        "asks": list[str],
        "family": str,
        "task": str | None,
        "labels": list[str],
        "mask": str | None,
    }
    about |= {"layers": int, "heads": int, "positions": int, "dial": bool}
    found["models"] = shape("Models", models=listed(shape("About", **about)))
    found["error"] = shape("Error", error=shape("Problem", code=str, message=str))
    return found
