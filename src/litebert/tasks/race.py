"""RACE: passages -> questions with four options, from JSONL or from the folders of the original download.

Each option is read with its question as one text: in the place of the blank where the question has one, else after it
(race_utils.py).
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from litebert.config import UserError
from litebert.corpus.read import open_bytes
from litebert.files import first_line
from litebert.tasks.example import Example
from litebert.tasks.table import read_rows

LEVELS = ("middle", "high")
LETTERS = "ABCD"


def read_race(path: str | Path, split: str, level: str = "both") -> Iterator[Example]:
    """The questions of a split; `level` middle, high or both. `path` holds `train.jsonl` or `train/middle/1.txt`."""
    if level not in (*LEVELS, "both"):
        raise UserError(f"level = {level!r}; allowed: middle, high, both")
    for where, passage in _passages(Path(path), split):
        found = str(passage.get("level") or _level_of(str(passage.get("id", "")), where))
        if level in ("both", found):
            yield from _questions(passage, found, where)


def _passages(path: Path, split: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    rows = [path] if path.is_file() else [file for file in sorted(path.glob(f"{split}.jsonl*")) if file.is_file()]
    stem = {"dev": "validation"}.get(split, split)
    parts = [] if rows else sorted(path.glob(f"all/{stem}-*-of-*.parquet"))
    for part in parts:  # the hub's layout: a question a row
        for number, row in read_rows(part):
            several = {
                "questions": [row.get("question")],
                "options": [row.get("options")],
                "answers": [row.get("answer")],
            }
            yield f"{part}, row {number}", {"id": row.get("example_id"), "article": row.get("article"), **several}
    if parts:
        return
    if rows:
        for number, row in read_rows(rows[0]):
            yield f"{rows[0]}, row {number}", row
        return
    files = sorted((path / split).glob("*/*.txt"), key=lambda file: (file.parent.name, len(file.stem), file.stem))
    if not files:
        raise UserError(f"no {split}.jsonl and no {split}/middle/*.txt in {path}; give RACE's own folder by --data")
    for file in files:
        try:
            passage = json.loads(open_bytes(file))
        except ValueError as problem:
            raise UserError(f"{file} is not JSON: {first_line(problem)}") from None
        yield str(file), {"level": file.parent.name, **passage}


def _level_of(name: str, where: str) -> str:
    found = next((level for level in LEVELS if name.startswith(level)), None)
    if found is None:
        raise UserError(f"{where}: no 'level', and the id {name!r} does not begin with middle or high")
    return found


def _questions(passage: Mapping[str, Any], level: str, where: str) -> Iterator[Example]:
    try:
        article, questions, options = passage["article"], passage["questions"], passage["options"]
        answers = passage.get("answers") or [None] * len(questions)
        if not len(questions) == len(options) == len(answers):
            raise UserError(f"{where}: {len(questions)} questions, {len(options)} lists of options")
        for number, (question, choices, answer) in enumerate(zip(questions, options, answers, strict=True)):
            if answer is not None and answer not in LETTERS[: len(choices)]:
                raise UserError(f"{where}: answer {answer!r} is none of {', '.join(LETTERS[: len(choices)])}")
            yield Example(
                key=f"{passage.get('id', where)}-{number}",
                texts=(article, *(with_option(question, choice) for choice in choices)),
                target=None if answer is None else LETTERS.index(answer),
                group=level,
                where=where,
            )
    except (KeyError, TypeError, AttributeError) as problem:
        raise UserError(f"{where} is not a passage of RACE: {problem!r}") from None


def with_option(question: str, option: str) -> str:
    """
    >>> with_option("The sea was _ .", "calm"), with_option("Who came?", "Ann")
    ('The sea was calm .', 'Who came? Ann')
    """
    return question.replace("_", option) if "_" in question else f"{question} {option}"
