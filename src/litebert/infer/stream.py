"""Examples -> a file of predictions, a few rows at a time: any number of rows takes the same memory, and a process that
was killed goes on where it stopped when the same command is given again.

Rows gather in `NAME.partial`; `NAME.progress` says how many of them, and bytes, are whole. The file itself appears when
the last row is in it.
"""

import csv
import fcntl
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from math import floor, log10
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Literal

import numpy as np

from litebert.config import UserError
from litebert.files import read_json, replace_file
from litebert.infer.predict import Asked, check_ensemble, listen
from litebert.tasks.answers import Answers, Said, decide, probability
from litebert.tasks.example import Example, Target, Task
from litebert.tasks.features import AT_ONCE
from litebert.tasks.glue import GLUE
from litebert.tasks.own import TEXTS, is_plain, read_texts
from litebert.tasks.read import read_unlabelled
from litebert.tasks.table import names_in
from litebert.tasks.words import words_of

Format = Literal["csv", "tsv", "jsonl", "glue", "squad"]
ENDINGS: dict[str, Format] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".json": "squad"}
ANSWERS = 5  # of those thought of, in JSONL


def format_of(path: Path, said: str | None) -> Format:
    if said is not None:
        if said not in (*ENDINGS.values(), "glue"):
            raise UserError(f"--format {said!r}; allowed: csv, tsv, jsonl, glue, squad")
        return said
    if path.suffix.lower() not in ENDINGS:
        raise UserError(f"{path}: predictions are written as .csv, .tsv, .jsonl or .json (SQuAD's); or say --format")
    return ENDINGS[path.suffix.lower()]


def columns_of(task: Task) -> tuple[str, ...]:
    """What the texts of an example are called, where the task says it."""
    if task.kind == "answer":
        return task.texts or ("question", "context")
    return task.texts or tuple(names[0] for names in (GLUE[task.name].texts if task.name in GLUE else ()))


def read_asked(task: Task, path: Path, split: str) -> Iterator[Example]:
    """What is to be answered: rows, or the lines of a plain file, each a text."""
    if not is_plain(path):
        yield from read_unlabelled(task, path, split)
        return
    names = (*columns_of(task), *(["options"] if task.kind == "choice" else []))
    if len(names) > 1 or task.kind == "choice":
        raise UserError(
            f"{path} holds a text a line, and this model reads {' and '.join(names)}; give JSONL with those"
        )
    for each in read_texts(path):
        text = each.texts[0]
        words = tuple(text[start:end] for start, end in words_of(text)) if task.kind == "tag" else (text,)
        yield replace(each, texts=words)


@contextmanager
def piped(task: Task, source: IO[bytes]) -> Iterator[Path]:
    """What is piped in, kept as a file while it is answered: its first line says whether it is JSONL, a CSV with the
    task's columns, or a text a line."""
    with TemporaryDirectory() as folder:
        held = Path(folder) / "input"
        with open(held, "wb") as file:
            shutil.copyfileobj(source, file)
        with open(held, encoding="utf-8-sig", errors="replace") as lines:
            first = next((line.strip() for line in lines if line.strip()), "")
        if not first:
            raise UserError("standard input is empty; pipe texts into it, one a line, or JSONL, or CSV")
        table = names_in(first) >= set(columns_of(task) or TEXTS[:1])
        path = held.rename(held.with_suffix(".jsonl" if first.startswith("{") else ".csv" if table else ".txt"))
        try:
            yield path
        except UserError as problem:
            raise UserError(str(problem).replace(str(path), "standard input")) from None


def predict_file(
    models: Sequence[Asked],
    examples: Iterator[Example],
    to: Path,
    form: Format,
    asked: dict[str, Any],
    say: Callable[[int], object] = lambda _: None,
) -> dict[str, int]:
    """`asked` tells one command from another: only the same one goes on with what an earlier one left."""
    task = check_ensemble(models)
    _check(task, form, to)
    partial, progress = (to.with_name(f"{to.name}.{ending}") for ending in ("partial", "progress"))
    counts = {"rows": 0, "cut": 0, "bytes": 0, "resumed": 0, "passes": 0}

    def took(passes: int) -> None:
        counts["passes"] += passes

    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        if progress.exists() and partial.exists():
            counts |= _left(progress, asked)
            counts["resumed"] = counts["rows"]
        with open(partial, "ab") as file:
            _lock(file, to)
            file.truncate(counts["bytes"])
            file.seek(counts["bytes"])
            if not counts["bytes"]:
                file.write(_head(task, form))
            source = islice(examples, counts["rows"], None)
            while some := list(islice(source, AT_ONCE)):
                for example, said, lost in listen(models, some, took):
                    file.write(_row(task, form, example, said, counts["rows"]))
                    counts["rows"] += 1
                    counts["cut"] += lost > 0
                file.flush()
                os.fsync(file.fileno())
                counts["bytes"] = file.tell()
                replace_file(progress, json.dumps({"asked": asked, "counts": counts}).encode())
                say(counts["rows"])
            file.write(b"\n}\n" if form == "squad" else b"")
        os.replace(partial, to)
        progress.unlink(missing_ok=True)
    except OSError as problem:
        raise UserError(
            f"cannot write {to}: {problem.strerror or problem}; the same command goes on from row {counts['rows']:,}"
        ) from None
    return counts


def _check(task: Task, form: Format, to: Path) -> None:
    if to.exists():
        raise UserError(f"{to} is there already; remove it, or write to another file")
    if form == "squad" and task.kind != "answer":
        raise UserError(f"SQuAD's format is for answers, and the model was taught {task.kind}; use .csv or .jsonl")
    if form == "glue" and task.kind not in ("classify", "regress"):
        raise UserError(f"GLUE's format is for classes and numbers, not {task.kind}; use .csv or .jsonl")


def _lock(file: IO[bytes], to: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise UserError(f"another process is writing {to}; wait for it, or write to another file") from None


def _left(progress: Path, asked: dict[str, Any]) -> dict[str, int]:
    found = read_json(progress)
    if found.get("asked") != json.loads(json.dumps(asked)):
        raise UserError(
            f"{progress} was left by another command (other models, rows, format, passes or bound); remove it and the "
            ".partial beside it to begin anew"
        )
    return dict(found["counts"])


def _head(task: Task, form: Format) -> bytes:
    match form:
        case "csv" | "tsv":
            return _line(["id", "prediction", "probability"] if task.kind != "regress" else ["id", "prediction"], form)
        case "glue":
            return b"index\tprediction\n"
        case "squad":
            return b"{"
        case _:
            return b""


def _row(task: Task, form: Format, example: Example, said: Said, number: int) -> bytes:
    decided = decide(task, said)
    match form:
        case "squad":
            before = "\n" if number == 0 else ",\n"
            return f"{before}{json.dumps(example.key)}: {json.dumps(decided, ensure_ascii=False)}".encode()
        case "glue":
            value = f"{decided:.3f}" if isinstance(decided, float) else str(decided)
            return f"{number}\t{value}\n".encode()
        case "jsonl":
            return (json.dumps(as_json(task, example, said), ensure_ascii=False) + "\n").encode()
        case _:
            share = probability(task, said, decided)
            return _line([example.key, as_text(task, decided), *([] if share is None else [f"{share:.6f}"])], form)


def _line(fields: Sequence[str], form: Format) -> bytes:
    """In TSV a quote is a character like any other, as it is read; what would end a field or a row becomes a space."""
    if form == "tsv":
        return ("\t".join(re.sub(r"[\t\r\n]", " ", field) for field in fields) + "\n").encode()
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue().encode()


def as_text(task: Task, decided: Target) -> str:
    """A decision in one field: labels joined by |, tags by spaces."""
    if isinstance(decided, tuple):
        return (" " if task.kind == "tag" else "|").join(map(str, decided))
    return in_full(task, decided) if isinstance(decided, float) else str(decided)


def in_full(task: Task, number: float) -> str:
    """All that float32, in which networks answer, can tell: of a number, or of its deviation where that was taught.

    >>> in_full(Task(kind="regress"), 0.30000001192092896), in_full(Task(kind="regress"), 16777215.0)
    ('0.3', '16777215')
    >>> in_full(Task(kind="regress", mean=3e6, scale=7e4), 3152437.250712345)
    '3152437.251'
    """
    if (task.mean, task.scale) == (0, 1):
        told = float(str(np.float32(number)))
    else:
        told = round(number, 7 - floor(log10(task.scale)))
    return str(told).removesuffix(".0")


def as_json(task: Task, example: Example, said: Said) -> dict[str, Any]:
    row: dict[str, Any] = {"id": example.key, "prediction": decide(task, said)}
    if isinstance(said, Answers):
        best = list(zip(said.texts, said.probabilities, strict=True))[:ANSWERS]
        row["answers"] = [{"text": text, "probability": round(share, 6)} for text, share in best]
        if task.unanswerable:
            row["no_answer"] = round(said.none, 6)
    elif task.kind in ("classify", "several"):
        row["probabilities"] = {name: round(float(share), 6) for name, share in zip(task.labels, said, strict=True)}
    elif task.kind == "choice":
        row["probabilities"] = [round(float(share), 6) for share in said]
    elif task.kind == "tag":
        row["tokens"] = list(example.texts)
        row["probabilities"] = [round(float(share), 6) for share in said.max(-1)]
    return row
