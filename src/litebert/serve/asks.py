"""What a model can be asked over HTTP: for each question, which models can answer it, and how many are at once.

Items come in from any number of requests; an answer each goes out, ready for JSON.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from litebert.infer.ask import answer_many, choose_many
from litebert.infer.batch import SENTENCE
from litebert.infer.fill import fill_many
from litebert.infer.model import Model
from litebert.serve.look import look, pieces

Options = Mapping[str, Any]
BYTES = 4  # of UTF-8 that a piece stands for, about: enough to batch by, and counted without tokenizing


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One kind of question."""

    says: str  # what it is for, in one line
    can: Callable[[Model], bool]
    items: Callable[[Mapping[str, Any]], list[Any]]  # a request's body -> what is answered apart
    run: Callable[[Model, list[Any], Options], Sequence[Any]]
    options: tuple[str, ...] = ("passes",)  # those of the body that items must share to go through together


def _taught(*kinds: str) -> Callable[[Model], bool]:
    def can(model: Model) -> bool:
        return model.tokenizer is not None and model.taught is not None and model.taught.task.kind in kinds

    return can


def _reads(model: Model) -> bool:
    return model.tokenizer is not None


def _texts(body: Mapping[str, Any]) -> list[Any]:
    return [tuple(text) if isinstance(text, list) else text for text in body["texts"]]


def _fill(model: Model, texts: list[str], options: Options) -> list[Any]:
    assert model.tokenizer is not None
    mask = model.tokenizer.piece(model.tokenizer.mask_id)
    found = fill_many(model, [text.replace("[MASK]", mask) for text in texts], options["top"], options["passes"])
    return [[[asdict(guess) for guess in guesses] for guesses in masks] for masks in found]


def _embed(model: Model, texts: list[Any], options: Options) -> list[Any]:
    vectors: list[Any] = model.embed(texts, **options).tolist()
    return vectors


ASKS: dict[str, Ask] = {
    "fill": Ask(
        says="The likeliest pieces for each [MASK] of each text.",
        can=lambda model: _reads(model) and "mlm" in model.heads,
        items=_texts,
        run=_fill,
        options=("top", "passes"),
    ),
    "classify": Ask(
        says="The label, the labels or the number of each text or pair of texts.",
        can=_taught(*SENTENCE),
        items=_texts,
        run=lambda model, texts, options: [asdict(told) for told in model.classify(texts, **options)],
        options=("passes", "settle", "from_passes"),
    ),
    "tag": Ask(
        says="A tag for each word of each text, and what the tags mark; a text is a string, or the list of its words.",
        can=_taught("tag"),
        items=_texts,
        run=lambda model, texts, options: [asdict(told) for told in model.tag(texts, **options)],
    ),
    "answer": Ask(
        says="What a passage says to a question, in its own words, and where.",
        can=_taught("answer"),
        items=lambda body: [(body["question"], body["passage"])],
        run=lambda model, pairs, options: [asdict(told) for told in answer_many(model, pairs, **options)],
    ),
    "choose": Ask(
        says="Which of the options fits a passage.",
        can=_taught("choice"),
        items=lambda body: [(body["passage"], *body["options"])],
        run=lambda model, cases, options: [asdict(told) for told in choose_many(model, cases, **options)],
        options=("passes", "settle", "from_passes"),
    ),
    "embed": Ask(
        says="One vector for each text or pair of texts.",
        can=_reads,
        items=_texts,
        run=_embed,
        options=("pool", "layers", "length", "normalise", "passes"),
    ),
    "pieces": Ask(
        says="The pieces that each text is read as.",
        can=_reads,
        items=_texts,
        run=lambda model, texts, options: [pieces(model, text) for text in texts],
        options=(),
    ),
    "look": Ask(
        says="Attention of one layer, and how alike the layers are, for one text of at most 64 pieces.",
        can=_reads,
        items=lambda body: [body["text"]],
        run=lambda model, texts, options: [look(model, text, **options) for text in texts],
        options=("layer", "head", "passes"),
    ),
}


def size(item: Any) -> int:
    """About how many pieces an item has.

    >>> size("four more words here"), size(("a pair", "of texts"))
    (7, 7)
    """
    if isinstance(item, str):
        return 2 + len(item.encode()) // BYTES
    return sum(size(part) for part in item)
