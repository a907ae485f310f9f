"""What every picture needs: an empty figure, axes without clutter, lines that differ without colour, and the file."""

import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

from litebert.config import UserError
from litebert.files import replace_file

KINDS = ("png", "svg", "pdf")
INK = "#1f5a94"
COLOURS = ("#1f5a94", "#d98032", "#2b8a6e", "#7a1f4b", "#8fa8c8", "#4d4d4d", "#b59a1d", "#9a6fc0")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
MARKERS = "osD^vPX*"


def new_figure(width: float, height: float) -> Any:
    """An empty figure that no window will ever show."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("pictures are drawn with matplotlib; install it with: pip install 'litebert[plot]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def plain(axes: Any, across: str, up: str) -> None:
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(alpha=0.3)
    for edge in ("top", "right"):
        axes.spines[edge].set_visible(False)


def line_style(number: int) -> dict[str, Any]:
    """How the number-th line is drawn: by its dashes and marks it is known in grey too."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 5,
        "linewidth": 1.6,
    }


def point_style(number: int) -> dict[str, Any]:
    """How the number-th point of a scatter is drawn."""
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)], "edgecolors": "black"}


def picture(figure: Any, kind: str = "png") -> bytes:
    held = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a label in another script; the page has it
        figure.savefig(held, format=kind, dpi=110)
    return held.getvalue()


def check_picture(to: Path) -> None:
    """Say before the work, not after it, that a picture cannot be drawn or cannot lie there."""
    if to.suffix.removeprefix(".").lower() not in KINDS:
        raise UserError(f"cannot write {to}: a picture is a file that ends in .png, .svg or .pdf; say one by --to")
    if to.is_dir():
        raise UserError(f"{to} is a folder; a picture is a file: say another by --to")
    new_figure(1, 1)


def save_picture(figure: Any, to: Path) -> None:
    """The file appears when it is whole."""
    check_picture(to)
    content = picture(figure, to.suffix.removeprefix(".").lower())
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        replace_file(to, content)
    except OSError as problem:
        raise UserError(f"cannot write {to}: {problem.strerror}; say another by --to") from None
