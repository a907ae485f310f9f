"""A user's own file -> what kind of task it is, and its examples.

Rows of CSV, TSV, JSONL or Parquet; CoNLL files for tags. The kind is inferred from what the columns hold, and can be
said.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from litebert.config import UserError
from litebert.corpus.read import KINDS, Bad, Source, ending, find_sources, is_unicode, read_lines, uncompressed
from litebert.files import meant
from litebert.tasks.decimals import has_decimal_commas, meant_by
from litebert.tasks.example import Example, Kind, Target, Task
from litebert.tasks.race import with_option
from litebert.tasks.table import Broken, Row, column, open_table, read_rows, text_of
from litebert.tasks.targets import (
    SEPARATOR,
    answers_of,
    as_number,
    choice_of,
    flag_of,
    in_spans,
    known,
    label_of,
    labels_of,
    missing,
    no_number,
    number_of,
    options_of,
    words_and_tags,
)

CONLL = (".conll", ".bio", ".iob")
NEARLY_ALL = 0.9  # of a column: then the rest is a mistake
MANY = 20  # more different whole numbers than this are a quantity, not classes
TEXTS, LABELS = ("text", "sentence"), ("label", "labels")  # what columns are called when nobody says
PASSAGES = (*TEXTS, "article", "context", "passage")


def infer_task(
    path: str | Path, texts: Sequence[str] = (), label: Sequence[str] = (), kind: Kind | None = None
) -> Task:
    """Look at a training file once and say what it is for; what is said is taken as it is."""
    if len(texts) > 2:
        raise UserError(f"{len(texts)} columns of text ({', '.join(texts)}); give one, or two for pairs")
    if len(label) > 1 and kind not in (None, "several"):
        raise UserError(f"several --label columns are yes or no each, which is --kind several, not {kind}")
    if is_conll(path):
        if kind not in (None, "tag"):
            raise UserError(f"{path} is a CoNLL file, which holds tags; --kind {kind} does not fit")
        labels = _sorted_tags(tag for row in _conll(path) for tag in row[2])
        return Task(kind="tag", texts=("tokens",), label=("tags",), labels=labels)
    row, where = _first(path)
    kind = kind or _shape(row)
    if kind in ("answer", "tag", "choice"):
        return _structured(path, row, where, kind, texts, label)
    chosen = tuple(texts) or _guess(row, TEXTS, where, "--text")
    target = tuple(label) or _guess(row, LABELS, where, "--label")
    for name in (*chosen, *target):
        column(row, (name,), where)
        if name in chosen and name in target:
            raise UserError(f"{path}: {name!r} is read and is to be learned; say another column by --text or --label")
    return _labelled(path, chosen, target, kind)


def is_conll(path: str | Path) -> bool:
    return ending(path) in CONLL


def is_plain(path: str | Path) -> bool:
    """Whether a file holds texts without columns, as its name says."""
    return KINDS.get(ending(path)) == "text"


def _first(path: str | Path) -> tuple[Row, str]:
    """The row that says what the columns are, and where it stands."""
    first = next(_rows(path), None)
    if first is None:
        raise UserError(f"{path} holds no row")
    return first[1], f"{path}, row {first[0]}"


def _rows(path: str | Path) -> Iterator[tuple[int, Row]]:
    """The rows of a table; one of SQuAD's own files is none, and the way to it is said."""
    if ending(path) == ".json":
        begin = "".join(line or "" for _, line in islice(read_lines(open_table(path), Bad(skip=True)), 50))
        if all(re.search(rf'"{key}"\s*:\s*\[', begin) for key in ("data", "paragraphs")):
            name, version = ("squad2", "v2.0") if '"is_impossible"' in begin else ("squad", "v1.1")
            raise UserError(
                f"{path} is JSON as SQuAD has it, not rows; put train-{version}.json and dev-{version}.json, made like "
                f"it, into a folder and say --task {name} --data FOLDER"
            )
    yield from read_rows(path)


def _shape(row: Row) -> Kind | None:
    """What the names and types of the columns give away, if they do."""
    if isinstance(row.get("options"), list):
        return "choice"
    if {"question", "context"} <= set(row):
        return "answer"
    if isinstance(row.get("tags"), list) or isinstance(row.get("spans"), list):
        return "tag"
    return None


def _guess(row: Row, usual: tuple[str, ...], where: str, flag: str) -> tuple[str, ...]:
    found = next((name for name in usual if name in row), None)
    if found is None:
        raise UserError(f"{where}: no column {usual[0]!r}; say which it is by {flag}: {', '.join(map(str, row))}")
    return (found,)


def guess_columns(path: str | Path, task: Task, texts: Sequence[str] = (), label: Sequence[str] = ()) -> Task:
    """The columns of a file, for a task that came without: a benchmark's, or a model's from elsewhere."""
    chosen, target = tuple(texts) or task.texts, tuple(label) or task.label
    if is_conll(path):
        return replace(task, texts=("tokens",), label=("tags",))
    row, where = _first(path)
    match task.kind:
        case "answer":
            usual: tuple[str, ...] = ("question", "context")
            marks: tuple[str, ...] = ("answers",)
        case "tag":
            usual = ("tokens",) if "tokens" in row else ("text",)
            marks = ("tags",) if "tags" in row else ("spans",)
        case "choice":
            usual = chosen or _guess(row, PASSAGES, where, "--text")
            marks = ("answer",) if "label" not in row else ("label",)
        case _:
            usual = chosen or _guess(row, TEXTS, where, "--text")
            marks = next(((name,) for name in LABELS if name in row), LABELS[:1])
    return replace(task, texts=chosen or usual, label=target or marks)


def _structured(path: str | Path, row: Row, where: str, kind: Kind, texts: Sequence[str], label: Sequence[str]) -> Task:
    if kind == "answer":
        task = guess_columns(path, Task(kind="answer"), texts, label)
        if len(task.texts) != 2:
            raise UserError(f"an answer needs two columns, question and passage; --text says {task.texts[0]!r} alone")
        return replace(task, unanswerable=any(not example.target for example in read_own(path, task)))
    if kind == "choice":
        return guess_columns(path, Task(kind="choice"), texts, label)
    task = guess_columns(path, Task(kind="tag", labels=("O",)), texts, label)
    seen = (words_and_tags(each, task.texts, task.label, f"{path}, row {n}")[1] for n, each in read_rows(path))
    return replace(task, labels=_sorted_tags(tag for tags in seen for tag in tags or ()))


def _labelled(path: str | Path, texts: tuple[str, ...], label: tuple[str, ...], said: Kind | None) -> Task:
    """Which labels there are; or that they are numbers."""
    if len(label) > 1:
        return Task(kind="several", texts=texts, label=label, labels=label)
    counts: Counter[str] = Counter()
    lists = numbers = whole = rows = 0
    odd = ""  # the first that is no number
    comma = has_decimal_commas(path, label[0])
    for number, row in read_rows(path):
        where = f"{path}, row {number}"
        value = column(row, label, where)
        rows += 1
        if isinstance(value, list) or said == "several":
            lists += 1
            counts.update(labels_of(value, label[0], where))
        else:
            if missing(value) and any(SEPARATOR in str(each.get(label[0])) for _, each in read_rows(path, skip=True)):
                raise UserError(
                    f"{where}: no label in {label[0]!r}; fill it in, or leave the row out; or say --kind several, if "
                    f"{SEPARATOR} joins labels there: then an empty field is none of them"
                )
            counts[label_of(value, label[0], where)] += 1
            found = as_number(value, comma)
            odd = odd or (no_number(value, label[0], where) if found is None else "")
            numbers += found is not None or meant_by(str(value).strip()) != ""
            whole += found is not None and found.is_integer()
    parts = set(counts) if lists else set() if said else joined(counts)
    if lists or parts:
        return Task(kind="several", texts=texts, label=label, labels=tuple(sorted(parts)))
    quantity = numbers >= NEARLY_ALL * rows and (whole < numbers or len(counts) > MANY)
    if not said and quantity and odd:
        raise UserError(f"{odd}; mend that, or say --kind classify if the column holds names")
    if said == "regress" or (not said and quantity):
        return Task(kind="regress", texts=texts, label=label)
    if not said and (len(counts) > max(50, rows // 2) or len(counts) == rows > MANY):
        raise UserError(
            f"{path}: {label[0]!r} holds {len(counts)} different values in {rows} rows, no set of labels; "
            "say which column is, by --label, or --kind classify if it is"
        )
    if len(counts) == 1:
        raise UserError(f"{path}: every row has the label {next(iter(counts))!r}; there is nothing to tell apart")
    return Task(kind="classify", texts=texts, label=label, labels=tuple(sorted(counts, key=_label_order)))


def joined(fields: Iterable[str]) -> set[str]:
    """The labels, if fields join some of them by | and each of those stands in several combinations.

    >>> sorted(joined(["sport", "sport|music", "music|politics", "politics", "food"]))
    ['food', 'music', 'politics', 'sport']
    >>> joined(["sport", "sport|music", "politics"])
    set()
    """
    sets = [{part.strip() for part in field.split(SEPARATOR) if part.strip()} for field in fields]
    seen = Counter(part for parts in sets for part in parts)
    among = {part for parts in sets if len(parts) > 1 for part in parts}
    return set(seen) if among and all(seen[part] > 1 for part in among) else set()


def _label_order(label: str) -> tuple[float, str]:
    number = as_number(label)
    return (number if number is not None else float("inf"), label)


def read_own(path: str | Path, task: Task, labelled: bool = True) -> Iterator[Example]:
    """The examples of a file. An unknown label, an empty text or a missing column is named with its row."""
    if task.kind == "tag" and is_conll(path):
        for number, words, said in _conll(path, labelled):
            where = f"{path}, row {number}"
            target = tuple(known(tag, task.labels, where) for tag in said) if labelled else None
            yield Example(key=str(number), texts=words, target=target, where=where)
        return
    comma = labelled and task.kind == "regress" and has_decimal_commas(path, task.label[0])
    for number, row in _rows(path):
        where = f"{path}, row {number}"
        key = _key(row, number)
        if task.kind == "tag":
            words, tags = words_and_tags(row, task.texts, task.label, where, labelled)
            for tag in set(tags or ()) if task.labels != ("O",) else ():
                known(tag, task.labels, where)
            yield Example(key=key, texts=words, target=tags, where=where)
            continue
        if task.kind == "choice":
            texts = _options(row, task, where)
        else:
            texts = tuple(text_of(row, (name,), where) for name in task.texts)
        if labelled:
            column(row, task.label[:1], where)
        right = _target(row, task, texts, where, comma) if labelled else None
        yield Example(key=key, texts=texts, target=right, where=where)


def _options(row: Row, task: Task, where: str) -> tuple[str, ...]:
    """The passage, and each option with its question where there is one."""
    options = options_of(row, where)
    question = row.get("question")
    if isinstance(question, str) and question.strip() and "question" not in task.texts:
        options = [with_option(question, option) for option in options]
    return (text_of(row, task.texts, where), *options)


def _target(row: Row, task: Task, texts: tuple[str, ...], where: str, comma: bool) -> Target:
    name, value = task.label[0], row[task.label[0]]
    match task.kind:
        case "regress":
            return number_of(value, name, where, comma)
        case "answer":
            return answers_of(value, texts[1], where)
        case "choice":
            return choice_of(value, options_of(row, where), where)
        case "several":
            if len(task.label) > 1:
                return tuple(each for each in task.label if flag_of(column(row, (each,), where), each, where))
            return tuple(known(part, task.labels, where) for part in labels_of(value, name, where))
        case _:
            return known(label_of(value, name, where), task.labels, where)


def read_texts(path: str | Path, columns: Sequence[str] = (), usual: Sequence[str] = ()) -> Iterator[Example]:
    """Texts, or pairs of them, that nothing is asked of: the rows of a table, or the lines of a plain file. `usual`:
    the columns to read if the table has them and none are said."""
    sources = find_sources([path])
    if len(sources) != 1:
        raise UserError(f"{path} is {len(sources)} files; give one of them")
    if len(columns) > 2:
        raise UserError(f"{len(columns)} columns of text ({', '.join(columns)}); give one, or two for pairs")
    plain = sources[0].kind == "text"
    if plain and columns:
        raise UserError(f"{path} is plain text, a line a text: it has no column {columns[0]!r}; leave --text out")
    lines = ((number, {"text": line or ""}) for number, line in read_lines(sources[0], Broken()))
    for number, row in lines if plain else read_rows(path):
        where = f"{path}, row {number}"
        if plain and not row["text"].strip():
            raise UserError(f"{where}: the line is empty, and each line is a text; remove it")
        there = usual if all(name in row for name in usual) else ()
        columns = columns or there or _guess(row, TEXTS, where, "--text")
        key, texts = _key(row, number), tuple(text_of(row, (name,), where).strip() for name in columns)
        if not all(map(is_unicode, (key, *texts))):
            raise UserError(f"{where}: half a surrogate pair stands there, which is no character; mend or remove it")
        yield Example(key=key, texts=texts, where=where)


def _key(row: Row, number: int) -> str:
    """Its name, if it has one."""
    return str(next((row[name] for name in ("id", "index") if not missing(row.get(name))), number))


def _conll(path: str | Path, labelled: bool = True) -> Iterator[tuple[int, tuple[str, ...], tuple[str, ...]]]:
    """Sentences of a CoNLL file: a word and its tag a line (first and last column), a blank line between sentences."""
    words: list[str] = []
    tags: list[str] = []
    begun = 1
    if not Path(path).is_file():
        raise UserError(f"no file {path}{meant(path)}")
    source = Source(str(path), "text", str(path).removeprefix(uncompressed(str(path))).lower())
    for number, line in read_lines(source, Broken()):
        parts = (line or "").split()
        if parts and parts[0] != "-DOCSTART-":
            if len(parts) < 2 and labelled:
                raise UserError(f"{path}, row {number}: 1 field where a word and its tag should be")
            begun = begun if words else number
            words.append(parts[0])
            tags.append(parts[-1])
        elif words:
            yield begun, tuple(words), tuple(tags)
            words, tags = [], []
    if words:
        yield begun, tuple(words), tuple(tags)


def _sorted_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Of entities O first, then by kind, B before I; others by their names."""
    found = set(tags)
    if not in_spans(found):
        return tuple(sorted(found))
    return tuple(sorted(found | {"O"}, key=lambda tag: (tag != "O", tag[2:], tag[:1])))
