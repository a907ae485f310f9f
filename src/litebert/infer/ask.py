"""A model that was taught a task, asked from Python: texts in, what it says out."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import TYPE_CHECKING

from litebert.config import UserError
from litebert.infer.batch import SENTENCE
from litebert.infer.predict import Asked, asked, listen
from litebert.infer.settle import Settle, settle_of
from litebert.infer.texts import are_texts, examples_of
from litebert.tasks.answers import Answers, Said, decide, probability
from litebert.tasks.example import Example, Kind, Target, Task
from litebert.tasks.metrics import entities
from litebert.tasks.targets import in_spans
from litebert.tasks.words import Places, words_of

if TYPE_CHECKING:
    from litebert.infer.model import Model


@dataclass(frozen=True)
class Told:
    """What a model says of one example."""

    value: Target  # a label, labels, a number, a tag a word, an answer, the number of an option
    probability: float | None  # of that; a number has none
    probabilities: dict[str, float]  # of every label; of the answers it thinks of; of the options, "0", "1", …
    start: int | None = None  # answer: where in the passage it begins, if there is one


@dataclass(frozen=True)
class Word:
    """A word and its tag. Where it stands is said in its text; words that came as a list stand a space apart."""

    text: str
    tag: str
    start: int
    end: int
    probability: float


@dataclass(frozen=True)
class Entity:
    """What the tags of one word or several mark together: those of B-X I-X, or of X X."""

    label: str
    text: str
    start: int
    end: int
    probability: float  # of the least sure of its words


@dataclass(frozen=True)
class Tagged(Told):
    """What a model says of the words of a text."""

    words: tuple[Word, ...] = ()
    entities: tuple[Entity, ...] = ()


def ready(
    model: "Model", kinds: tuple[Kind, ...], what: str, passes: int | None, settle: Settle | None = None
) -> Asked:
    """The model where it is, if it was taught something of these kinds."""
    weights = model.encoder.embeddings.words.weight
    found = asked(model, weights.device, model.encoder.embeddings.compute or weights.dtype, passes, settle)
    if found.task.kind not in kinds:
        raise UserError(f"this model was taught {found.task.describe()}; it cannot {what}")
    return found


def tell(model: Asked, examples: Sequence[Example]) -> list[Told]:
    task, found = model.task, []
    for each in examples:
        if not are_texts(each.texts):
            odd = next(part for part in each.texts if not isinstance(part, str))
            raise UserError(f"{each.where}: {odd!r:.60} is not text")
    for _, said, _ in listen([model], examples):
        value = decide(task, said)
        if isinstance(said, Answers):
            shares = dict(zip(said.texts, said.probabilities, strict=True))
        elif task.kind in ("classify", "several"):
            shares = dict(zip(task.labels, said.tolist(), strict=True))
        elif task.kind == "choice":
            shares = {str(number): share for number, share in enumerate(said.tolist())}
        else:
            shares = {}
        start = said.starts[0] if isinstance(said, Answers) and value != "" and said.starts else None
        found.append(Told(value, probability(task, said, value), shares, start))
    return found


def classify(
    model: "Model",
    texts: Sequence[str | tuple[str, str]],
    passes: int | None = None,
    settle: float | None = None,
    from_passes: int | None = None,
) -> list[Told]:
    examples = examples_of(texts)
    chosen = ready(model, SENTENCE, "classify", passes, settle_of(settle, from_passes))
    return tell(chosen, examples)


def tag(model: "Model", sentences: Sequence[str | Sequence[str]], passes: int | None = None) -> list[Tagged]:
    """A sentence is a list of words, which stay as they are, or a text, which is split as `words_of` says."""
    if isinstance(sentences, str):
        raise UserError("sentences is a single text; give a list of them")
    for number, each in enumerate(sentences):
        if not are_texts(each):
            raise UserError(f"sentence {number} is {each!r:.60}; give a text, or a list of its words")
    chosen = ready(model, ("tag",), "tag words", passes)
    texts = [each if isinstance(each, str) else " ".join(each) for each in sentences]
    places = [words_of(each) if isinstance(each, str) else _spaced(each) for each in sentences]
    examples = [
        Example(key=str(n), texts=tuple(text[low:high] for low, high in spans), where=f"sentence {n}")
        for n, (text, spans) in enumerate(zip(texts, places, strict=True))
    ]
    heard = (said for _, said, _ in listen([chosen], examples))
    return [_tagged(chosen.task, *each) for each in zip(texts, places, heard, strict=True)]


def _spaced(words: Sequence[str]) -> Places:
    starts = accumulate((len(word) + 1 for word in words), initial=0)
    return [(start, start + len(word)) for start, word in zip(starts, words, strict=False)]


def _tagged(task: Task, text: str, places: Places, said: Said) -> Tagged:
    assert not isinstance(said, Answers), "tags have probabilities"
    tags, shares = decide(task, said), said.max(-1).tolist()
    assert isinstance(tags, tuple)
    words = [
        Word(text[low:high], str(tag), low, high, share)
        for (low, high), tag, share in zip(places, tags, shares, strict=True)
    ]
    return Tagged(tags, probability(task, said, tags), {}, None, tuple(words), _entities(text, words))


def _entities(text: str, words: Sequence[Word]) -> tuple[Entity, ...]:
    tags = [word.tag for word in words]
    if in_spans(tags):
        marked = sorted(entities(tags))
    else:
        runs = [[*run] for tag, run in groupby(range(len(tags)), tags.__getitem__) if tag != "O"]
        marked = [(run[0], run[-1] + 1, tags[run[0]]) for run in runs]
    found = []
    for first, end, label in marked:
        low, high = words[first].start, words[end - 1].end
        found.append(Entity(label, text[low:high], low, high, min(word.probability for word in words[first:end])))
    return tuple(found)


def answer(model: "Model", question: str, passage: str, passes: int | None = None) -> Told:
    return answer_many(model, [(question, passage)], passes)[0]


def answer_many(model: "Model", pairs: Sequence[tuple[str, str]], passes: int | None = None) -> list[Told]:
    """To each question with its passage."""
    chosen = ready(model, ("answer",), "answer questions", passes)
    return tell(chosen, [Example(key=str(n), texts=pair, where="the question") for n, pair in enumerate(pairs)])


def choose(
    model: "Model",
    passage: str,
    options: Sequence[str],
    passes: int | None = None,
    settle: float | None = None,
    from_passes: int | None = None,
) -> Told:
    if isinstance(options, str):
        raise UserError("options is a single text; give a list of them")
    return choose_many(model, [(passage, *options)], passes, settle, from_passes)[0]


def choose_many(
    model: "Model",
    cases: Sequence[tuple[str, ...]],  # each a passage and its options
    passes: int | None = None,
    settle: float | None = None,
    from_passes: int | None = None,
) -> list[Told]:
    chosen = ready(model, ("choice",), "choose among options", passes, settle_of(settle, from_passes))
    for _, *options in cases:
        if len(options) < 2:
            raise UserError(f"{len(options)} options leave nothing to choose; give two or more")
    return tell(chosen, [Example(key=str(n), texts=each, where="the choice") for n, each in enumerate(cases)])
