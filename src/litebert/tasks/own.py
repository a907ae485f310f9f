"""A user's own file -> what kind of task it is, and its examples.

Rows of CSV, TSV, JSONL or Parquet; CoNLL files for tags. The kind is inferred from what the columns hold, and can be
said.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from litebert.config import UserError
from litebert.corpus.read import Bad, Source, find_sources, is_unicode, read_lines
from litebert.strict import neighbour
from litebert.tasks.example import Answer, Example, Kind, Target, Task
from litebert.tasks.table import Row, column, read_rows, text_of

CONLL = (".conll", ".bio", ".iob")
SEPARATOR = "|"  # between the labels of `several` in one field
MANY = 20  # more different whole numbers than this are a quantity, not classes
TEXTS, LABELS = ("text", "sentence"), ("label", "labels")  # what columns are called when nobody says


def infer_task(
    path: str | Path, texts: Sequence[str] = (), label: Sequence[str] = (), kind: Kind | None = None
) -> Task:
    """Look at a training file once and say what it is for; what is said is taken as it is."""
    if str(path).endswith(CONLL):
        return Task(kind="tag", labels=_sorted_tags(tag for row in _conll(path) for tag in row[2]))
    first = next(read_rows(path), None)
    if first is None:
        raise UserError(f"{path} holds no row")
    row, where = first[1], f"{path}, row {first[0]}"
    kind = kind or _shape(row)
    if kind in ("answer", "tag", "choice"):
        return _structured(path, row, where, kind, texts, label)
    chosen = tuple(texts) or _guess(row, TEXTS, where, "--text")
    target = tuple(label) or _guess(row, LABELS, where, "--label")
    for name in (*chosen, *target):
        column(row, (name,), where)
    return _labelled(path, chosen, target, kind)


def _shape(row: Row) -> Kind | None:
    """What the names and types of the columns give away, if they do."""
    if {"question", "context"} <= set(row):
        return "answer"
    if isinstance(row.get("options"), list):
        return "choice"
    if isinstance(row.get("tags"), list) or isinstance(row.get("spans"), list):
        return "tag"
    return None


def _guess(row: Row, usual: tuple[str, ...], where: str, flag: str) -> tuple[str, ...]:
    found = next((name for name in usual if name in row), None)
    if found is None:
        raise UserError(f"{where}: no column {usual[0]!r}; say which it is by {flag}: {', '.join(map(str, row))}")
    return (found,)


def _structured(path: str | Path, row: Row, where: str, kind: Kind, texts: Sequence[str], label: Sequence[str]) -> Task:
    if kind == "answer":
        task = Task(kind="answer", texts=tuple(texts) or ("question", "context"), label=tuple(label) or ("answers",))
        return replace(task, unanswerable=any(not example.target for example in read_own(path, task)))
    if kind == "choice":
        chosen = tuple(texts) or _guess(row, (*TEXTS, "article", "context"), where, "--text")
        return Task(
            kind="choice", texts=chosen, label=tuple(label) or _guess(row, ("label", "answer"), where, "--label")
        )
    words = tuple(texts) or (("tokens",) if "tokens" in row else ("text",))
    marks = tuple(label) or (("tags",) if "tags" in row else ("spans",))
    seen = (_words_and_tags(each, words, marks, f"{path}, row {number}")[1] for number, each in read_rows(path))
    labels = _sorted_tags(tag for tags in seen for tag in tags or ())
    return Task(kind="tag", texts=words, label=marks, labels=labels)


def _labelled(path: str | Path, texts: tuple[str, ...], label: tuple[str, ...], said: Kind | None) -> Task:
    """Which labels there are; or that they are numbers."""
    if len(label) > 1:
        return Task(kind="several", texts=texts, label=label, labels=label)
    counts: Counter[str] = Counter()
    lists = numbers = whole = rows = 0
    for number, row in read_rows(path):
        value = column(row, label, f"{path}, row {number}")
        rows += 1
        if isinstance(value, list):
            lists += 1
            counts.update(map(str, value))
        else:
            numbers += _number(value) is not None
            whole += _number(value) is not None and float(value).is_integer()
            several = str(value).split(SEPARATOR) if said == "several" else [_name(value)]
            counts.update(part for part in several if part)
    if lists or said == "several":
        return Task(kind="several", texts=texts, label=label, labels=tuple(sorted(counts)))
    quantity = numbers == rows and (whole < rows or len(counts) > MANY)
    if said == "regress" or (not said and quantity):
        return Task(kind="regress", texts=texts, label=label)
    if not said and len(counts) > max(50, rows // 2):
        raise UserError(
            f"{path}: {label[0]!r} holds {len(counts)} different values in {rows} rows, no set of labels; "
            "say which column is, by --label, or --kind classify if it is"
        )
    return Task(kind="classify", texts=texts, label=label, labels=tuple(sorted(counts, key=_label_order)))


def _label_order(label: str) -> tuple[float, str]:
    number = _number(label)
    return (number if number is not None else float("inf"), label)


def _number(value: Any) -> float | None:
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if found == found and abs(found) != float("inf") else None


def _name(value: Any) -> str:
    return str(value).strip()


def read_own(path: str | Path, task: Task, labelled: bool = True) -> Iterator[Example]:
    """The examples of a file. An unknown label, an empty text or a missing column is named with its row."""
    if task.kind == "tag" and str(path).endswith(CONLL):
        for number, words, said in _conll(path):
            where = f"{path}, row {number}"
            for tag in set(said) if labelled else ():
                _known(tag, task, where)
            yield Example(key=str(number), texts=words, target=said if labelled else None, where=where)
        return
    for number, row in read_rows(path):
        where = f"{path}, row {number}"
        key = _key(row, number)
        if task.kind == "tag":
            words, tags = _words_and_tags(row, task.texts, task.label, where)
            if labelled and tags is None:
                column(row, task.label[:1], where)
            for tag in set(tags or ()) if labelled else ():
                _known(tag, task, where)
            yield Example(key=key, texts=words, target=tags if labelled else None, where=where)
        elif task.kind == "choice":
            options = column(row, ("options",), where)
            texts = (text_of(row, task.texts, where), *(str(option) for option in options))
            target: Target | None = _choice(column(row, task.label, where), options, where) if labelled else None
            yield Example(key=key, texts=texts, target=target, where=where)
        else:
            texts = tuple(text_of(row, (name,), where) for name in task.texts)
            known = labelled and all(name in row for name in task.label)
            if labelled and not known:
                column(row, task.label[:1], where)
            yield Example(key=key, texts=texts, target=_target(row, task, where) if known else None, where=where)


def read_texts(path: str | Path, columns: Sequence[str] = ()) -> Iterator[Example]:
    """Texts, or pairs of them, that nothing is asked of: the rows of a table, or the lines of a plain file."""
    sources = find_sources([path])
    if len(sources) != 1:
        raise UserError(f"{path} is {len(sources)} files; give one of them")
    if len(columns) > 2:
        raise UserError(f"{len(columns)} columns of text ({', '.join(columns)}); give one, or two for pairs")
    plain = sources[0].kind == "text"
    if plain and columns:
        raise UserError(f"{path} is plain text, a line a text: it has no column {columns[0]!r}; leave --text out")
    lines = ((number, {"text": line or ""}) for number, line in read_lines(sources[0], Bad(remedy="mend or remove it")))
    for number, row in lines if plain else read_rows(path):
        where = f"{path}, row {number}"
        if plain and not row["text"].strip():
            raise UserError(f"{where}: the line is empty, and each line is a text; remove it")
        columns = columns or _guess(row, TEXTS, where, "--text")
        key, texts = _key(row, number), tuple(text_of(row, (name,), where).strip() for name in columns)
        if not all(map(is_unicode, (key, *texts))):
            raise UserError(f"{where}: half a surrogate pair stands there, which is no character; mend or remove it")
        yield Example(key=key, texts=texts, where=where)


def _key(row: Row, number: int) -> str:
    return str(row.get("id", row.get("index", number)))


def _target(row: Row, task: Task, where: str) -> Target:
    value = row[task.label[0]]
    match task.kind:
        case "regress":
            number = _number(value)
            if number is None:
                raise UserError(f"{where}: {value!r} in {task.label[0]!r} is not a number")
            return number
        case "answer":
            return _answers(value, row[task.texts[1]], where)
        case "several":
            if len(task.label) > 1:
                return tuple(name for name in task.label if _flag(row[name], name, where))
            parts = value if isinstance(value, list) else [part for part in str(value).split(SEPARATOR) if part]
            return tuple(_known(_name(part), task, where) for part in parts)
        case _:
            return _known(_name(value), task, where)


def _known(label: str, task: Task, where: str) -> str:
    if label not in task.labels:
        raise UserError(f"{where}: label {label!r} is not in the training file{neighbour(label, task.labels)}")
    return label


def _flag(value: Any, name: str, where: str) -> bool:
    if str(value).strip().lower() in ("1", "1.0", "true", "yes"):
        return True
    if str(value).strip().lower() in ("0", "0.0", "false", "no", ""):
        return False
    raise UserError(f"{where}: {value!r} in {name!r} is neither yes nor no (1 or 0)")


def _answers(value: Any, passage: str, where: str) -> tuple[Answer, ...]:
    """`{"text": […], "answer_start": […]}` as SQuAD has it on the hub, a list of such, or the text alone."""
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        starts = value.get("answer_start") or [None] * len(value["text"])
        pairs = list(zip(value["text"], starts, strict=True))
    elif isinstance(value, list):
        pairs = [(each["text"], each.get("answer_start")) if isinstance(each, dict) else (each, None) for each in value]
    else:
        pairs = [(value, None)] if value else []
    found = []
    for text, start in pairs:
        at = passage.find(str(text)) if start is None else int(start)
        if at < 0 or passage[at : at + len(str(text))] != str(text):
            raise UserError(f"{where}: the answer {str(text)[:40]!r} does not stand in the passage where it should")
        found.append(Answer(str(text), at))
    return tuple(found)


def _choice(value: Any, options: Sequence[Any], where: str) -> int:
    """Its number, its letter or its text."""
    if isinstance(value, int) and 0 <= value < len(options):
        return value
    text = _name(value)
    names = [*map(_name, options)]
    if text in names:
        return names.index(text)
    letters = "ABCDEFGHIJ"[: len(options)]
    if len(text) == 1 and text.upper() in letters:
        return letters.index(text.upper())
    if text.isdigit() and int(text) < len(options):
        return int(text)
    raise UserError(f"{where}: {value!r} is none of the {len(options)} options")


def _words_and_tags(
    row: Row, texts: tuple[str, ...], label: tuple[str, ...], where: str
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Words with a tag each, from lists or from a text with marked spans."""
    value = column(row, texts, where)
    marks = row.get(label[0])
    if isinstance(value, list):
        if marks is not None and len(marks) != len(value):
            raise UserError(f"{where}: {len(value)} words and {len(marks)} tags")
        return tuple(map(str, value)), None if marks is None else tuple(map(str, marks))
    text = text_of(row, texts, where)
    words, at = [], 0
    for word in text.split():
        start = text.index(word, at)
        words.append((start, start + len(word), word))
        at = start + len(word)
    if marks is None:
        return tuple(word for _, _, word in words), None
    tags = ["O"] * len(words)
    for mark in marks:
        touched = [n for n, (low, high, _) in enumerate(words) if low < mark["end"] and high > mark["start"]]
        if not touched or not 0 <= mark["start"] < mark["end"] <= len(text):
            raise UserError(f"{where}: the span {mark['start']} to {mark['end']} marks no word of the text")
        for n in touched:
            tags[n] = f"{'B' if n == touched[0] else 'I'}-{mark['label']}"
    return tuple(word for _, _, word in words), tuple(tags)


def _conll(path: str | Path) -> Iterator[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    """Sentences of a CoNLL file: a word and its tag a line (first and last column), a blank line between sentences."""
    words: list[str] = []
    tags: list[str] = []
    begun = 1
    source = Source(str(path), "text", "")
    if not Path(path).is_file():
        raise UserError(f"no file {path}")
    for number, line in read_lines(source, Bad(remedy="mend or remove it")):
        parts = (line or "").split()
        if parts and parts[0] != "-DOCSTART-":
            if len(parts) < 2:
                raise UserError(f"{path}, row {number}: 1 field where a word and its tag should be")
            begun = begun if words else number
            words.append(parts[0])
            tags.append(parts[-1])
        elif words:
            yield begun, tuple(words), tuple(tags)
            words, tags = [], []
    if words:
        yield begun, tuple(words), tuple(tags)


def _sorted_tags(tags: Iterator[str]) -> tuple[str, ...]:
    """O first, then by kind, B before I."""
    found = set(tags)
    return tuple(sorted(found | {"O"}, key=lambda tag: (tag != "O", tag[2:], tag[:1])))
