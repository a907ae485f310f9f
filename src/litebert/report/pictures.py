"""An `Evaluation` -> its figures as PNG: confusion, calibration, guesses against what is right, confidences; and a
model at several depths -> the curve of score against time."""

from litebert.report.depths import Depths
from litebert.report.evaluation import BINS, Calibration, Confusion, Evaluation
from litebert.report.figure import INK, new_figure, picture, plain

NUMBERED = 20  # labels up to which every cell of a confusion says its count
NAMES = ("confusion.png", "calibration.png", "scatter.png", "confidence.png")  # all there may be


def draw(found: Evaluation) -> dict[str, bytes]:
    """The figures that the kind of task has, by the names of their files."""
    pictures = {}
    if found.confusion is not None:
        pictures["confusion.png"] = _confusion(found.confusion, "words" if found.task.kind == "tag" else "examples")
    if found.calibration is not None:
        pictures["calibration.png"] = _calibration(found.calibration)
        pictures["confidence.png"] = _confidence(found.calibration)
    if found.points:
        pictures["scatter.png"] = _scatter(found.points)
    return pictures


def draw_depths(found: Depths) -> bytes:
    """The first score of each depth over the time it costs, and over the passes."""
    figure = new_figure(11, 4.5)
    left, right = figure.subplots(1, 2, sharey=True)
    first = [each.scores[0] for each in found.depths]
    heights, errors = (
        [100 * value for value in side] for side in zip(*((s.value, s.error) for s in first), strict=True)
    )
    times = [each.seconds for each in found.depths]  # of 1,000 examples: the milliseconds of one
    passes = [each.passes for each in found.depths]
    for axes, across in ((left, times), (right, [each.taken for each in found.depths])):
        axes.errorbar(across, heights, errors, marker="o", color=INK, capsize=3)
    for x, y, number in zip(times, heights, passes, strict=True):
        left.annotate(str(number), (x, y), xytext=(4, 5), textcoords="offset points", fontsize=9)
    right.xaxis.get_major_locator().set_params(integer=True)
    plain(left, "milliseconds an example (beside each point its passes)", f"{first[0].name} × 100 ± standard error")
    plain(right, "passes" if found.settle is None else "passes that an example took, on average", "")
    return picture(figure)


def _confusion(found: Confusion, what: str) -> bytes:
    """Shaded by the share of each row, so that rare labels show as well."""
    count = len(found.labels)
    side = min(16.0, 3.0 + 0.45 * count)
    figure = new_figure(side + 1, side)
    axes = figure.subplots()
    shares = [[each / max(1, sum(row)) for each in row] for row in found.counts]
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    names = [label if len(label) <= 24 else f"{label[:23]}…" for label in found.labels]
    small = 9 if count <= NUMBERED else 6
    axes.set_xticks(range(count), names, rotation=90 if count > 4 else 0, fontsize=small, parse_math=False)
    axes.set_yticks(range(count), names, fontsize=small, parse_math=False)
    axes.set_xlabel("said")
    axes.set_ylabel("right")
    for row, counts in enumerate(found.counts if count <= NUMBERED else ()):
        for column, number in enumerate(counts):
            colour = "white" if shares[row][column] > 0.5 else "black"
            axes.text(column, row, f"{number:,}", ha="center", va="center", color=colour, fontsize=9)
    figure.colorbar(image, label=f"share of the {what} in a row", shrink=0.8)
    return picture(figure)


def _calibration(found: Calibration) -> bytes:
    """The reliability diagram: on the diagonal, a confidence is what it says."""
    figure = new_figure(5.5, 5)
    axes = figure.subplots()
    filled = [(bin_.confidence, bin_.accuracy) for bin_ in found.bins if bin_.count]
    axes.plot([0, 1], [0, 1], color="grey", linestyle="--", linewidth=1)
    axes.plot(*zip(*filled, strict=True), marker="o", color=INK)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_title(f"expected calibration error {100 * found.error:.2f} %")
    plain(axes, "confidence", "share that was right")
    return picture(figure)


def _confidence(found: Calibration) -> bytes:
    """How many guesses were made with which confidence, and how many of them were right."""
    figure = new_figure(5.5, 4)
    axes = figure.subplots()
    centres = [(number + 0.5) / BINS for number in range(BINS)]
    right = [bin_.count * bin_.accuracy for bin_ in found.bins]
    wrong = [bin_.count - good for bin_, good in zip(found.bins, right, strict=True)]
    axes.bar(centres, right, 0.9 / BINS, color=INK, label="right")
    axes.bar(centres, wrong, 0.9 / BINS, bottom=right, color="#d98032", label="wrong")
    axes.legend()
    plain(axes, "confidence", "guesses")
    return picture(figure)


def _scatter(points: tuple[tuple[float, float], ...]) -> bytes:
    figure = new_figure(5.5, 5)
    axes = figure.subplots()
    low, high = (pick(value for point in points for value in point) for pick in (min, max))
    axes.plot([low, high], [low, high], color="grey", linestyle="--", linewidth=1)
    axes.scatter(*zip(*points, strict=True), s=12, alpha=0.5, color=INK, edgecolors="none")
    plain(axes, "right", "said")
    return picture(figure)
