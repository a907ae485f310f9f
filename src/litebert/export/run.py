"""A model from its ONNX file, with onnxruntime, tokenizers and numpy alone. It stands beside the file it runs.

    python run.py "The [MASK] sailed away."             what a mask stands for
    python run.py "A fine film." ["and a second text"]  a label or a number, with probabilities
    python run.py "Who came?" "Anna came late."         an answer (a model taught to answer questions)
    python run.py "passage" "option one" "option two"   which option fits (a model taught to choose)

A text longer than the model is cut. As a library: `Ran(folder).say(texts)`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

LONGEST_ANSWER = 30  # pieces


class Ran:
    """A session and its tokenizer."""

    def __init__(self, folder: str | Path, threads: int = 0) -> None:
        self.about = json.loads((Path(folder) / "about.json").read_text(encoding="utf-8"))
        self.tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(self.about["length"])
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        file = str(Path(folder) / "model.onnx")
        self.session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self.inputs = {each.name for each in self.session.get_inputs()}

    def batch(self, encodings: list[Any], passes: int | None = None) -> dict[str, np.ndarray]:
        """Padded to the longest."""
        width = max(len(each.ids) for each in encodings)
        shape = len(encodings), width
        given = {name: np.zeros(shape, dtype=np.int64) for name in ("attention_mask", "token_type_ids", "allowed")}
        given["input_ids"] = np.full(shape, self.about["pad_id"], dtype=np.int64)
        for row, each in enumerate(encodings):
            size = len(each.ids)
            given["input_ids"][row, :size], given["attention_mask"][row, :size] = each.ids, 1
            given["token_type_ids"][row, :size] = each.type_ids
            given["allowed"][row, :size] = [number == 1 for number in each.sequence_ids]
        given["passes"] = np.array(passes or self.about["passes"], dtype=np.int64)
        return {name: value for name, value in given.items() if name in self.inputs}

    def logits(self, encodings: list[Any], passes: int | None = None) -> dict[str, np.ndarray]:
        names = [each.name for each in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, self.batch(encodings, passes)), strict=True))

    def say(self, texts: list[str], passes: int | None = None) -> Any:
        """What the model says of a text, a pair, a question and passage, a passage and options, or a masked text."""
        heads = self.about["heads"]
        if "choice" in heads:
            options = [self.tokenizer.encode(texts[0], option) for option in texts[1:]]
            return dict(zip(texts[1:], softmax(self.logits(options, passes)["choice"][:, 0]), strict=True))
        encoding = self.tokenizer.encode(texts[0], texts[1] if len(texts) > 1 else None)
        found = {name: value[0] for name, value in self.logits([encoding], passes).items()}
        if "mlm" in heads and self.about["mask"] in texts[0]:
            return self.fill(encoding, found["mlm"])
        if "span" in heads or "span-beam" in heads:
            return self.answer(texts[1], encoding, found)
        if "tag" in heads:
            best = found["tag"].argmax(-1)
            named = zip(encoding.tokens, best, encoding.special_tokens_mask, strict=True)
            return [(piece, heads["tag"][label]) for piece, label, special in named if not special]
        if "regress" in heads:
            return float(found["regress"][0])
        if "classify" in heads:
            several, scores = self.about["several"], found["classify"]
            shares = 1 / (1 + np.exp(-scores)) if several else softmax(scores)
            return dict(zip(heads["classify"], shares.tolist(), strict=True))
        return {name: value.tolist() for name, value in found.items() if name != "mlm"}

    def fill(self, encoding: Any, logits: np.ndarray, top: int = 5) -> list[list[tuple[str, float]]]:
        masks = [at for at, token in enumerate(encoding.tokens) if token == self.about["mask"]]
        logits[:, self.about["special"]] = -np.inf
        shares = [softmax(logits[at]) for at in masks]
        best = [np.argsort(-each)[:top] for each in shares]
        named = zip(best, shares, strict=True)
        return [[(str(self.tokenizer.id_to_token(int(at))), float(each[at])) for at in some] for some, each in named]

    def answer(self, passage: str, encoding: Any, found: dict[str, np.ndarray]) -> dict[str, Any]:
        inside = np.array([number == 1 for number in encoding.sequence_ids])
        spans = []
        if "span" in found:
            start, end = (np.where(inside, found["span"][:, side], -np.inf) for side in (0, 1))
            scores = start[:, None] + end[None, :]
            places = np.argwhere(np.isfinite(scores))
            spans = [(float(scores[low, high]), int(low), int(high)) for low, high in places]
        else:
            for low, score, ends, more in zip(*(found[k] for k in ("start_at", "start", "end_at", "end")), strict=True):
                spans += [(float(score + each), int(low), int(high)) for high, each in zip(ends, more, strict=True)]
        spans = [
            each for each in spans if each[1] <= each[2] < each[1] + LONGEST_ANSWER and inside[[each[1], each[2]]].all()
        ]
        value, low, high = max(spans)
        said = {"answer": passage[encoding.offsets[low][0] : encoding.offsets[high][1]], "score": value}
        return said | ({"no answer": float(found["no_answer"])} if "no_answer" in found else {})


def softmax(scores: np.ndarray) -> np.ndarray:
    shares = np.exp(scores - scores.max())
    result: np.ndarray = shares / shares.sum()
    return result


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(str(__doc__))
    sys.stdout.write(
        json.dumps(Ran(Path(__file__).parent).say(sys.argv[1:]), ensure_ascii=False, indent=1, default=float) + "\n"
    )
