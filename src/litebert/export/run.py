"""A model from its ONNX file, with onnxruntime, tokenizers and numpy alone. It stands beside the file it runs.

    python run.py "The [MASK] sailed away."             what a mask stands for
    python run.py "A fine film." ["and a second text"]  a label or a number, with probabilities
    python run.py "Ann went to Rome."                   a tag for each word (a model taught to tag)
    python run.py "Who came?" "Anna came late."         an answer (a model taught to answer questions)
    python run.py "passage" "option one" "option two"   which option fits (a model taught to choose)

A text longer than the model is cut. As a library: `Ran(folder).say(texts)`.
"""

import json
import math
import re
import sys
import unicodedata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

TAKES = {  # head: what it is given, of how many texts at least and at most
    "choice": ("PASSAGE OPTION OPTION …", 3, math.inf),
    "span": ("QUESTION PASSAGE", 2, 2),
    "span-beam": ("QUESTION PASSAGE", 2, 2),
    "tag": ("TEXT", 1, 1),
}
BEST = 20  # answers thought of

WHOLE = re.compile(r"(?:[^\W\d_]\.){1,8}|['’][sS]")  # J. U.N. z.B. 's
OWNED = re.compile(r"\S+?(?=['’][sS]$)")  # Ann's
ALIKE = re.compile(r"(.)\1*")


class Misasked(ValueError):  # noqa: N818
    """Not what the model can be asked: one line says why."""


class Row(NamedTuple):
    """Pieces as the model takes them, specials included: a list each, as long as the row."""

    ids: list[int]
    types: list[int]
    texts: list[int | None]  # whose text a piece is of; None: a special
    offsets: list[tuple[int, int]]  # where in that text
    words: list[int | None]  # of a list of words: which of them


class Ran:
    """A session and its tokenizer."""

    def __init__(self, folder: str | Path, threads: int = 0) -> None:
        self.about = read_about(folder)
        self.tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(self.about["length"])
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        file = str(Path(folder) / "model.onnx")
        self.session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self.inputs = {each.name for each in self.session.get_inputs()}
        self.bare = self.tokenizer.token_to_id("▁")  # a word's start, and none of its text

    def say(self, texts: list[str], passes: int | None = None) -> Any:
        """What the model says of a text, a pair, a question and passage, a passage and options, or a masked text."""
        heads = self.about["heads"]
        what, least, most = takes(heads)
        if not least <= len(texts) <= most:
            raise Misasked(f"texts given: {len(texts)}; this model is asked by: python run.py {what}")
        if any("\ud800" <= char <= "\udfff" for text in texts for char in text):
            raise Misasked("half a surrogate pair, which is no character; was the text cut, or decoded wrongly?")
        if "choice" in heads:
            options = [self.row(texts[0], option) for option in texts[1:]]
            return dict(zip(texts[1:], softmax(self.logits(options, passes)["choice"][:, 0]), strict=True))
        if "mlm" in heads and self.about["mask"] in texts[0]:
            return self.fill(texts, passes)
        if "span" in heads or "span-beam" in heads:
            return self.answer(texts[0], texts[1], passes)
        if "tag" in heads:
            return self.tag(texts[0], passes)
        found = {name: value[0] for name, value in self.logits([self.row(*texts)], passes).items() if name != "mlm"}
        if not found:
            raise Misasked(f"nothing to fill: write {self.about['mask']} where a word is missing")
        if "regress" in heads:
            return float(found["regress"][0])
        if "classify" in heads:
            several, scores = self.about["several"], found["classify"]
            shares = 1 / (1 + np.exp(-scores)) if several else softmax(scores)
            return dict(zip(heads["classify"], shares.tolist(), strict=True))
        return {name: value.tolist() for name, value in found.items()}

    def row(self, text: str | list[str], pair: str | None = None) -> Row:
        found = self.tokenizer.encode(text, pair, is_pretokenized=isinstance(text, list))
        marks = zip(found.ids, found.offsets, strict=True)
        offsets = [(start, start if index == self.bare else end) for index, (start, end) in marks]
        return Row(found.ids, found.type_ids, found.sequence_ids, offsets, found.word_ids)

    def batch(self, rows: list[Row], passes: int | None = None) -> dict[str, np.ndarray]:
        """Padded to the longest."""
        shape = len(rows), max(len(each.ids) for each in rows)
        given = {name: np.zeros(shape, dtype=np.int64) for name in ("attention_mask", "token_type_ids", "allowed")}
        given["input_ids"] = np.full(shape, self.about["pad_id"], dtype=np.int64)
        for number, row in enumerate(rows):
            size = len(row.ids)
            given["input_ids"][number, :size], given["attention_mask"][number, :size] = row.ids, 1
            given["token_type_ids"][number, :size] = row.types
            given["allowed"][number, :size] = allowed(row)
        given["passes"] = np.array(passes or self.about["passes"], dtype=np.int64)
        return {name: value for name, value in given.items() if name in self.inputs}

    def logits(self, rows: list[Row], passes: int | None = None) -> dict[str, np.ndarray]:
        names = [each.name for each in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, self.batch(rows, passes)), strict=True))

    def fill(self, texts: list[str], passes: int | None = None, top: int = 5) -> list[list[tuple[str, float]]]:
        row, mask = self.row(*texts), self.tokenizer.token_to_id(self.about["mask"])
        kept = []
        for at, index in enumerate(row.ids):  # what touches a mask goes on with its word
            text = texts[row.texts[at] or 0]
            touches = at > 0 and row.ids[at - 1] == mask and not text[row.offsets[at - 1][1] :][:1].isspace()
            if not (touches and index == self.bare):
                kept.append(at)
        row = Row._make([part[at] for at in kept] for part in row)
        logits = self.logits([row], passes)["mlm"][0]
        logits[:, self.about["special"]] = logits[:, self.tokenizer.get_vocab_size() :] = -np.inf
        shares = [softmax(logits[at]) for at, index in enumerate(row.ids) if index == mask]
        best = [np.argsort(-each)[:top] for each in shares]
        named = zip(best, shares, strict=True)
        return [[(str(self.tokenizer.id_to_token(int(at))), float(each[at])) for at in some] for some, each in named]

    def tag(self, text: str, passes: int | None = None) -> list[dict[str, Any]]:
        """A tag for each word, by its first piece; what does not fit is not seen."""
        labels, places = self.about["heads"]["tag"], words_of(text)
        if not places:
            return []
        words = [text[low:high] if not at else f" {text[low:high]}" for at, (low, high) in enumerate(places)]
        sizes = [len(each.ids) for each in self.tokenizer.encode_batch(words, add_special_tokens=False)]
        room = self.about["length"] - self.tokenizer.num_special_tokens_to_add(False)
        row = self.row(words[: max(1, int((np.cumsum(sizes) <= room).sum()))])
        found = softmax(self.logits([row], passes)["tag"][0])
        shares = np.zeros((len(words), len(labels)))
        shares[:, labels.index("O") if "O" in labels else 0] = 1e-9  # of words that were not seen
        for at, word in reversed([*enumerate(row.words)]):  # the first piece last
            if word is not None:
                shares[word] = found[at]
        return [
            {
                "text": text[low:high],
                "tag": labels[share.argmax()],
                "start": low,
                "end": high,
                "probability": max(share),
            }
            for (low, high), share in zip(places, shares, strict=True)
        ]

    def answer(self, question: str, passage: str, passes: int | None = None) -> dict[str, Any]:
        """What the passage says, where it begins, and the probability of that; "" where it says nothing."""
        row = self.row(question, passage)
        found = {name: value[0] for name, value in self.logits([row], passes).items()}
        silence = float(found["no_answer"]) if "no_answer" in found else -math.inf
        none = 1 / (1 + math.exp(-max(-500.0, silence)))
        last = len(passage) if len(row.ids) < self.about["length"] else 0  # unless the passage was cut
        following = zip(row.offsets[1:], row.texts[1:], strict=True)
        after = [*(start if text == 1 else last for (start, _), text in following), last]
        best: dict[str, tuple[float, int]] = {}
        for value, low, high in spans(found, row, self.about["answer_length"]):
            start, end = row.offsets[low][0], max(row.offsets[high][1], after[high])  # with an accent that was dropped
            if text := passage[start:end].strip():
                best.setdefault(text, (value, passage.index(text, start)))
        if not best or silence > self.about["threshold"]:
            return {"answer": "", "probability": none, "start": None}
        text, (most, start) = next(iter(best.items()))
        share = 1 / sum(math.exp(value - most) for value, _ in best.values())
        return {"answer": text, "probability": (1 - none) * share, "start": start}


def spans(found: dict[str, np.ndarray], row: Row, longest: int) -> list[tuple[float, int, int]]:
    """Score, first and last piece of what may be the answer, best first."""
    if "span" in found:
        scores = np.where(allowed(row)[:, None], found["span"], -np.inf).astype(np.float64)
        starts, ends = np.argsort(-scores, axis=0, kind="stable")[:BEST].T
        pairs = [(scores[low, 0] + scores[high, 1], low, high) for low in starts for high in ends]
    else:
        beams = zip(*(found[name] for name in ("start", "start_at", "end", "end_at")), strict=True)
        pairs = [
            (float(score) + float(more), low, high)
            for score, low, mores, highs in beams
            for more, high in zip(mores, highs, strict=True)
        ]
    kept = [
        (float(score), int(low), int(high))
        for score, low, high in pairs
        if score > -1e30 and row.texts[low] == row.texts[high] == 1 and low <= high < low + longest
    ]
    return sorted(kept, key=lambda span: -span[0])[:BEST]


def allowed(row: Row) -> np.ndarray:
    """Where an answer may start or end: in the passage, or at the first piece, which says that there is none."""
    return np.array([at == 0 or text == 1 for at, text in enumerate(row.texts)])


def words_of(text: str) -> list[tuple[int, int]]:
    """Where words begin and end. They stand apart by white space; punctuation before and behind one is a word for each
    run of one character, and so is an 's; a full stop stays behind single letters."""
    found: list[tuple[int, int]] = []
    for match in re.finditer(r"\S+", text):
        (start, end), (low, high) = match.span(), match.span()
        while low < high and punctuation(text[low]) and not WHOLE.fullmatch(text, low, high):
            low += 1
        while low < high and punctuation(text[high - 1]) and not WHOLE.fullmatch(text, low, high):
            high -= 1
        owner = owned.end() if (owned := OWNED.match(text, low, high)) else high
        found += [run.span() for run in ALIKE.finditer(text, start, low)]
        found += [(a, b) for a, b in ((low, owner), (owner, high)) if a < b]
        found += [run.span() for run in ALIKE.finditer(text, high, end)]
    return found


def punctuation(char: str) -> bool:
    return unicodedata.category(char).startswith("P")


def softmax(scores: np.ndarray) -> np.ndarray:
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    result: np.ndarray = shares / shares.sum(-1, keepdims=True)
    return result


def read_about(folder: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(folder) / "about.json").read_text(encoding="utf-8"))
    return found


def takes(heads: dict[str, Any]) -> tuple[str, int, float]:
    return next((TAKES[head] for head in heads if head in TAKES), ("TEXT [SECOND TEXT]", 1, 2))


def main(words: list[str]) -> int:
    folder = Path(__file__).parent
    if words in (["-h"], ["--help"]):
        sys.stdout.write(f"usage: python run.py {takes(read_about(folder)['heads'])[0]}\n\n{__doc__}")
        return 0
    try:
        said = Ran(folder).say(words)
    except Misasked as problem:
        sys.stderr.write(f"{problem}\n")
        return 2
    sys.stdout.write(json.dumps(said, ensure_ascii=False, indent=1, default=float) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
