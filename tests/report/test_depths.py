"""The curve of score against time: each depth is the evaluation at that depth, and its time is its own."""

import json
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from litebert.cli import app
from litebert.config import HeadConfig, Reading, UserError
from litebert.infer.model import load
from litebert.infer.predict import ask
from litebert.infer.settle import Settle
from litebert.model.weights import build
from litebert.report import depths, evaluation
from litebert.report.depths import at_depths
from litebert.report.evaluation import evaluate
from litebert.tasks.example import Answer, Example, Task
from litebert.tasks.taught import Taught
from tests.toys import classes, questions, toy_model, write_rows

PNG = b"\x89PNG\r\n\x1a\n"
PAIR = ("bad", "good")
CLASSES = Task(kind="classify", labels=PAIR, texts=("review",), label=("stars",))
SILENT = Task(kind="answer", unanswerable=True, texts=("question", "context"), label=("answers",), threshold=1e9)


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """taught(): the folder of a shared trunk of six passes with a head of fresh weights."""
    made = {}

    def make(task=CLASSES, family="albert"):
        if (task, family) not in made:
            kind = "classify" if task.kind == "classify" else "span-beam"
            head = HeadConfig(kind=kind, labels=task.labels)
            folder = toy_model(tmp_path_factory.mktemp("m"), family, layers=6, seed=4)
            model = load(folder)
            network = build(model.config, (head,), 4)
            network.encoder.load_state_dict(model.encoder.state_dict())
            replace(model, network=network, taught=Taught(task, Reading(length=32, question_length=8))).save(folder)
            made[task, family] = folder
        return made[task, family]

    return make


@pytest.fixture
def file(tmp_path):
    return write_rows(tmp_path / "dev.csv", classes(60))


def run(*words):
    return CliRunner().invoke(app, ["evaluate", *map(str, words), "--device", "cpu"], catch_exceptions=False)


def as_json(*words):
    return json.loads(run(*words, "--json").stdout)


def labelled(count=60):
    return [Example(key=str(n), texts=(row["review"],), target=row["stars"]) for n, row in enumerate(classes(count))]


def test_each_depth_has_the_scores_of_an_evaluation_at_that_depth(taught, file):
    found = as_json(taught(), "--data", file, "--passes", "1..4,6")
    assert [each["passes"] for each in found["depths"]] == [1, 2, 3, 4, 6]
    alone = [as_json(taught(), "--data", file, "--passes", number)["scores"] for number in (1, 2, 3, 4, 6)]
    assert [each["scores"] for each in found["depths"]] == alone
    assert alone[-1] == as_json(taught(), "--data", file)["scores"]
    assert len({json.dumps(scores) for scores in alone}) > 2
    assert found["counts"] == {"examples": 60, "cut": 0}
    assert all(score["error"] >= 0 for each in found["depths"] for score in each["scores"])


def test_the_command_gives_the_same_curve_again(taught, file):
    found = as_json(taught(), "--data", file, "--passes", "5,2..3", "--settle", "0.01", "--from-passes", "3")
    assert found["command"].endswith("--passes 2,3,5 --settle 0.01 --from-passes 3")
    assert found["settle"] == {"bound": 0.01, "from_passes": 3}


def test_the_task_is_written_as_the_model_has_it(taught, file):
    written = json.loads((taught() / "task.json").read_text())["task"]
    assert as_json(taught(), "--data", file, "--passes", "1,2")["task"] == written
    assert not {"mean", "scale"} & set(written)


def test_more_passes_than_it_was_trained_with_are_allowed(taught, file):
    assert [each["passes"] for each in as_json(taught(), "--data", file, "--passes", "6,9")["depths"]] == [6, 9]


def test_the_time_of_a_depth_is_its_own_and_the_warm_up_is_not_counted(taught, monkeypatch):
    """On a clock that a pass over an example moves by a second, and the first look at examples by a thousand more."""
    now, seen, real = [0.0], set(), depths.listen

    def listen(models, some, *took):
        first = some[0].key not in seen
        seen.add(some[0].key)
        now[0] += models[0].most * len(some) + (1000 if first else 0)
        return real(models, some, *took)

    monkeypatch.setattr(evaluation, "A_FEW", 16)
    monkeypatch.setattr(depths, "listen", listen)
    monkeypatch.setattr(depths.time, "perf_counter", lambda: now[0])
    heard = []
    found = at_depths(ask(["m"], [load(taught())]), labelled(40), [4, 1, 3], say=heard.append)
    assert [(each.passes, each.seconds) for each in found.depths] == [(1, 1000.0), (3, 3000.0), (4, 4000.0)]
    assert heard == [16, 32, 40]


def test_deeper_takes_longer(taught):
    found = at_depths(ask(["m"], [load(taught())]), labelled(60), [1, 60])
    assert 0 < found.depths[0].seconds < found.depths[1].seconds


def test_what_was_cut_is_counted_and_said(taught, tmp_path):
    file = write_rows(tmp_path / "long.csv", [{"review": "the " * n, "stars": "bad"} for n in (3, 60, 80)])
    assert as_json(taught(), "--data", file, "--passes", "1,2")["counts"] == {"examples": 3, "cut": 2}
    text = run(taught(), "--data", file, "--passes", "1,2").stdout
    assert "note: 2 of 3 texts are longer than the 32 pieces that are read, and were cut" in text
    assert "note: no example of 'good'" in text


def test_the_threshold_is_chosen_anew_at_each_depth(taught):
    rows = questions(30, unanswerable=0.5)
    some = [
        Example(
            key="",
            texts=(row["question"], row["context"]),
            target=tuple(Answer(each["text"], row["context"].index(each["text"])) for each in row["answers"]),
        )
        for row in rows
    ]
    asked = ask(["m"], [load(taught(SILENT))])
    found = at_depths(asked, some, [2, 6], tune_threshold=True)
    for each in found.depths:
        alone = evaluate([replace(asked[0], passes=each.passes)], some, tune_threshold=True)
        assert each.scores == alone.scores
    assert any("chosen at each depth on these very questions" in note for note in found.notes)
    assert found.depths[0].scores[0].value > at_depths(asked, some, [2, 6]).depths[0].scores[0].value


def test_people_read_passes_scores_and_seconds(taught, file):
    text = run(taught(), "--data", file, "--passes", "2,6").stdout
    assert "seconds for 1,000 examples" in text
    assert "taken on average" not in text
    for number in (2, 6):
        assert re.search(rf"^ +{number} +\d+\.\d\d ± \d+\.\d\d +\d+\.\d\d ± \d+\.\d\d +\d+\.\d+ *$", text, re.MULTILINE)


def test_a_folder_gets_the_picture_and_the_figures(taught, file, tmp_path):
    pytest.importorskip("matplotlib")
    to = tmp_path / "curve"
    found = as_json(taught(), "--data", file, "--passes", "1,3,6", "--to", to)
    assert found.pop("report") == str(to)
    assert {path.name for path in to.iterdir()} == {"passes.png", "passes.json"}
    assert (to / "passes.png").read_bytes().startswith(PNG)
    assert json.loads((to / "passes.json").read_text()) == found
    assert "passes.png" in run(taught(), "--data", file, "--passes", "1,3,6", "--to", to, "--settle", "0.1").stdout


def test_the_picture_shows_scores_with_errors_over_time_and_over_passes(taught, monkeypatch):
    pytest.importorskip("matplotlib")
    from litebert.report import pictures

    figures = []
    monkeypatch.setattr(pictures, "picture", lambda figure: figures.append(figure) or b"")
    found = at_depths(ask(["m"], [load(taught())]), labelled(), [1, 3, 6])
    pictures.draw_depths(found)
    left, right = figures[0].axes
    heights = [100 * each.scores[0].value for each in found.depths]
    for axes, across in ((left, [each.seconds for each in found.depths]), (right, [1, 3, 6])):
        (line, _, bars) = axes.containers[0]
        assert line.get_xdata().tolist() == pytest.approx(across)
        assert line.get_ydata().tolist() == pytest.approx(heights)
        low, high = bars[0].get_segments()[0][:, 1]
        assert high - low == pytest.approx(200 * found.depths[0].scores[0].error)
    assert [text.get_text() for text in left.texts] == ["1", "3", "6"]


def test_one_depth_is_an_ordinary_evaluation_with_its_report(taught, file, tmp_path):
    pytest.importorskip("matplotlib")
    found = as_json(taught(), "--data", file, "--passes", 2, "--to", tmp_path / "r")
    assert found["passes"] == 2
    assert found["command"].endswith("--passes 2")
    assert found["scores"] != as_json(taught(), "--data", file)["scores"]
    assert "2.00 passes on average" in (tmp_path / "r" / "index.html").read_text()
    assert as_json(taught(), "--data", file)["passes"] is None


def test_an_evaluation_says_how_many_passes_its_examples_took(taught, file):
    asked = ask(["m"], [load(taught())], settle=Settle(1.0, 3))
    assert evaluate(asked, labelled()).passes == 3
    found = as_json(taught(), "--data", file, "--settle", "0.05")
    assert 2 <= found["passes"] < 6
    assert found["command"].endswith("--settle 0.05")
    text = run(taught(), "--data", file, "--settle", "0.05").stdout
    assert re.search(rf"passes of an example \(mean\) +{found['passes']:.2f} +60 *\n", text)
    assert "passes" not in run(taught(), "--data", file).stdout
    curve = run(taught(), "--data", file, "--passes", "2,6", "--settle", "0.05").stdout
    assert re.search(rf"^ +6 +{found['passes']:.2f} +", curve, re.MULTILINE)


@pytest.mark.parametrize(
    ("family", "words", "sentence"),
    [
        (
            "albert",
            ["--passes", "6..2"],
            r"--passes '6..2'; give numbers from 1 to 9999: one such as 4, a list such as",
        ),
        ("albert", ["--passes", "0..2"], "--passes '0..2'; give numbers from 1"),
        ("albert", ["--passes", "two"], "--passes 'two'; give numbers"),
        ("albert", ["--passes", "1,,2"], "--passes '1,,2'; give numbers"),
        ("albert", ["--passes", "-3"], "--passes '-3'; give numbers"),
        ("bert", ["--passes", "1..12"], "passes = 12 needs a trunk whose layers are all the same one"),
        ("bert", ["--passes", "4"], "passes = 4 needs a trunk whose layers are all the same one"),
        ("albert", ["--settle", "0"], "settle = 0 must be above 0"),
        ("albert", ["--passes", "1..3", "--settle", "0.1", "--from-passes", "4"], "from_passes = 4 is beyond the 3"),
    ],
)
def test_a_depth_that_cannot_be_is_one_line_before_anything_is_read(family, words, sentence, taught, tmp_path):
    with pytest.raises(UserError, match=sentence) as problem:
        run(taught(family=family), "--data", tmp_path / "none.csv", "--to", tmp_path / "r", *words)
    assert "\n" not in str(problem.value)
    assert not list(tmp_path.iterdir())


def test_held_out_text_settles_nothing(taught, tmp_path):
    with pytest.raises(UserError, match="--shards are for a pre-trained model, the rest for a fine-tuned one"):
        run(taught(), "--shards", tmp_path, "--settle", "0.1")
