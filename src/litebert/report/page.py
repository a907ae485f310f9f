"""An `Evaluation` -> a folder for people and programs: `index.html`, which needs nothing beside it, `report.json`, and
the figures as PNG."""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from litebert.config import UserError
from litebert.files import replace_file
from litebert.report.cases import Case
from litebert.report.depths import Depths
from litebert.report.evaluation import Calibration, Confusion, Evaluation
from litebert.report.figure import new_figure
from litebert.report.pictures import NAMES, NUMBERED, draw, draw_depths

PAGE, FIGURES = "index.html", "report.json"
CURVE, DEPTHS = "passes.png", "passes.json"
MISTAKES = 30  # that are listed where a confusion has too many labels for a table

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
table { border-collapse: collapse; } th, td { padding: .3rem .7rem; border-bottom: 1px solid #ddd; }
th { text-align: left; font-weight: 600; } td { vertical-align: top; } td.n { text-align: right; }
td.n { font-variant-numeric: tabular-nums; } td.hit { background: #e4eefa; } code { background: #f3f3f3; }
img { max-width: 100%; } .wide { overflow-x: auto; } .texts p { margin: 0 0 .4rem; } .where { color: #777; }
"""
CAPTIONS = {
    "confusion.png": "What was right (rows) and what was said (columns)",
    "calibration.png": "Whether the model is right as often as it is confident",
    "confidence.png": "How confident it is",
    "scatter.png": "What is right against what was said",
}


def check_folder(folder: Path) -> None:
    """Say before the work, not after it, that a report cannot be drawn or cannot lie there."""
    new_figure(1, 1)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; a report is a folder: say another by --to")


def as_table(found: Evaluation, models: Sequence[str], data: str, command: str) -> dict[str, Any]:
    """Everything but the points of a scatter, as plain values."""
    labels = [
        asdict(each) | {"precision": each.precision, "recall": each.recall, "f1": each.f1} for each in found.labels
    ]
    return {
        "command": command,
        "models": list(models),
        "data": data,
        "task": found.task.as_table(),
        "counts": {"examples": found.examples, "cut": found.cut},
        "passes": found.passes,
        "scores": [asdict(each) for each in found.scores],
        "labels": labels,
        "confusion": None if found.confusion is None else asdict(found.confusion),
        "calibration": None if found.calibration is None else asdict(found.calibration),
        "worst": [asdict(each) for each in found.worst],
        "notes": list(found.notes),
    }


def write_report(folder: Path, found: Evaluation, models: Sequence[str], data: str, command: str) -> list[Path]:
    """The files of a report, the page last."""
    pictures = draw(found)
    table = as_table(found, models, data, command)
    files = pictures | {
        FIGURES: (json.dumps(table, indent=1, ensure_ascii=False) + "\n").encode(),
        PAGE: page(found, models, data, command, pictures).encode(),
    }
    return write_folder(folder, files, set(NAMES) - set(pictures))


def write_depths(folder: Path, found: Depths, table: Mapping[str, Any]) -> list[Path]:
    """The curve of score against time as a picture, and its figures."""
    text = json.dumps(table, indent=1, ensure_ascii=False) + "\n"
    return write_folder(folder, {CURVE: draw_depths(found), DEPTHS: text.encode()})


def write_folder(folder: Path, files: Mapping[str, bytes], gone: Iterable[str] = ()) -> list[Path]:
    """Each file whole; those that an earlier report left and this one lacks go."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            replace_file(folder / name, content)
        for name in gone:
            (folder / name).unlink(missing_ok=True)
    except OSError as problem:
        raise UserError(f"cannot write {folder}: {problem.strerror}; say another folder by --to") from None
    return [folder / name for name in files]


def page(found: Evaluation, models: Sequence[str], data: str, command: str, pictures: Mapping[str, bytes]) -> str:
    """HTML with the figures inside it."""
    title = f"{' + '.join(Path(name).name for name in models)} on {found.task.name or Path(data).name}"
    passes = "" if found.passes is None else f"; {found.passes:.2f} passes on average"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(found.task.describe())}; {found.examples:,} examples{passes}. <code>{escape(command)}</code></p>",
        *(f"<p>Note: {escape(note)}.</p>" for note in found.notes),
        "<h2>Scores</h2>",
        _rows(
            ["score × 100", "", "standard error", "examples"],
            [
                [each.name, _hundred(each.value), f"± {_hundred(each.error)}", f"{each.count:,}"]
                for each in found.scores
            ],
        ),
    ]
    if found.labels:
        parts += ["<h2>Each label</h2>", _labels(found)]
    if found.confusion is not None:
        parts += ["<h2>Confusion</h2>", _confusion(found.confusion)]
    for name, picture in pictures.items():
        caption = escape(CAPTIONS[name])
        source = f"data:image/png;base64,{b64encode(picture).decode()}"
        parts.append(f'<h2>{caption}</h2><img src="{source}" alt="{caption}">')
    if found.calibration is not None:
        parts.append(_calibration(found.calibration))
    parts += ["<h2>What went worst</h2>", _worst(found.worst)]
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _hundred(value: float) -> str:
    return f"{100 * value:.2f}"


def _rows(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is words and whose others are numbers."""
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = ""
    for first, *others in rows:
        cells = "".join(f'<td class="n">{escape(cell)}</td>' for cell in others)
        body += f"<tr><td>{escape(first)}</td>{cells}</tr>\n"
    return f'<div class="wide"><table><tr>{top}</tr>\n{body}</table></div>'


def _labels(found: Evaluation) -> str:
    rows = []
    for each in found.labels:
        counts = (f"{count:,}" for count in (each.wanted, each.found, each.right))
        rows.append([each.label, *counts, *map(_hundred, (each.precision, each.recall, each.f1))])
    return _rows(["label", "wanted", "said", "right", "precision × 100", "recall × 100", "F1 × 100"], rows)


def _confusion(found: Confusion) -> str:
    """All of it, or where the labels are too many for a table the mistakes that happen most."""
    if len(found.labels) > NUMBERED:
        pairs = [
            (number, right, said)
            for right, row in zip(found.labels, found.counts, strict=True)
            for said, number in zip(found.labels, row, strict=True)
            if number and right != said
        ]
        most = sorted(pairs, key=lambda pair: -pair[0])[:MISTAKES]
        return _rows(["right", "said", "times"], [[right, said, f"{number:,}"] for number, right, said in most])
    top = "".join(f"<th>{escape(label)}</th>" for label in found.labels)
    body = ""
    for right, row in zip(found.labels, found.counts, strict=True):
        cells = "".join(
            f'<td class="n{" hit" if right == said else ""}">{number:,}</td>'
            for said, number in zip(found.labels, row, strict=True)
        )
        body += f"<tr><th>{escape(right)}</th>{cells}</tr>\n"
    return f'<div class="wide"><table><tr><th>right \\ said</th>{top}</tr>\n{body}</table></div>'


def _calibration(found: Calibration) -> str:
    rows = []
    for number, each in enumerate(found.bins):
        if each.count:
            edges = " to ".join(f"{edge / len(found.bins):.1f}" for edge in (number, number + 1))
            rows.append([edges, f"{each.count:,}", _hundred(each.confidence), _hundred(each.accuracy)])
    said = f"<p>Expected calibration error: {_hundred(found.error)} %.</p>"
    return said + _rows(["confidence", "guesses", "mean confidence × 100", "right × 100"], rows)


def _worst(cases: Sequence[Case]) -> str:
    if not cases:
        return "<p>Nothing: every guess was right.</p>"
    shares = any(each.probability is not None for each in cases)
    top = f"<tr><th>text</th><th>right</th><th>said</th>{'<th>probability</th>' if shares else ''}</tr>"
    rows = []
    for each in cases:
        text = "".join(f"<p>{escape(part)}</p>" for part in each.texts)
        share = "" if each.probability is None else f'<td class="n">{each.probability:.3f}</td>'
        rows.append(
            f'<tr><td class="texts">{text}<span class="where">{escape(each.where or each.key)}</span></td>'
            f"<td>{escape(each.gold)}</td><td>{escape(each.guess)}</td>{share}</tr>"
        )
    return f'<div class="wide"><table>{top}\n{chr(10).join(rows)}</table></div>'
