"""How deep an answer goes: passes as a choice, and examples that stop as soon as their answer has settled."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from typer.testing import CliRunner

from litebert.cli import app
from litebert.config import HeadConfig, Reading, UserError
from litebert.infer.model import load
from litebert.infer.predict import asked, listen
from litebert.infer.settle import Settle
from litebert.infer.stream import predict_file
from litebert.model.encoder import Trunk
from litebert.model.weights import build
from litebert.tasks.example import Example, Task
from litebert.tasks.taught import Taught
from tests.toys import WORDS, toy_model, write_rows

LAYERS = 8
PAIR = ("bad", "good")
HEADS = {
    "classify": (Task(kind="classify", labels=PAIR, texts=("text",)), HeadConfig(kind="classify", labels=PAIR)),
    "several": (Task(kind="several", labels=PAIR), HeadConfig(kind="classify", labels=PAIR, several=True)),
    "regress": (Task(kind="regress", texts=("text",)), HeadConfig(kind="regress")),
    "choice": (Task(kind="choice"), HeadConfig(kind="choice")),
    "tag": (Task(kind="tag", labels=("O", "B-LOC")), HeadConfig(kind="tag", labels=("O", "B-LOC"))),
    "answer": (Task(kind="answer"), HeadConfig(kind="span")),
}
SETTLING = ("classify", "several", "regress", "choice")


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """taught('classify'): the folder of a shared trunk of eight passes that was taught nothing but says something."""
    made = {}

    def make(kind="classify", family="albert", long="cut"):
        if (kind, family, long) not in made:
            task, head = HEADS[kind]
            folder = toy_model(tmp_path_factory.mktemp(kind), family, layers=LAYERS)
            model = load(folder)
            network = build(model.config, (head,), 0)
            network.encoder.load_state_dict(model.encoder.state_dict())
            reading = Reading(length=24, question_length=8, stride=8, long=long)
            replace(model, network=network, taught=Taught(task, reading)).save(folder)
            made[kind, family, long] = folder
        return made[kind, family, long]

    return make


def examples(kind="classify", count=40, longest=18, seed=0):
    rng = np.random.default_rng(seed)
    words = [list(rng.choice(WORDS[:30], rng.integers(2, longest))) for _ in range(count)]
    if kind == "choice":  # of two, three or four options
        return [
            Example(key=str(n), texts=(" ".join(some), *rng.choice(WORDS[:30], 2 + n % 3)))
            for n, some in enumerate(words)
        ]
    return [Example(key=str(n), texts=(" ".join(some),)) for n, some in enumerate(words)]


def heard(model, some):
    """What is said of each example, and the passes each took."""
    passes = []
    said = [each for _, each, _ in listen([model], some, passes.append)]
    return said, passes


def by_definition(folder, some, settle):
    """The same one example at a time, each asked anew at every depth."""
    model, found = load(folder), []
    deep = [asked(model, passes=number) for number in range(1, LAYERS + 1)]
    for example in some:
        rows = [next(listen([each], [example]))[1] for each in deep]
        changes = [np.abs(now - before).max() for before, now in pairwise(rows)]  # of pass 2, 3, …
        stop = next(
            (at for at, change in enumerate(changes, 2) if at >= settle.from_passes and change <= settle.bound), LAYERS
        )
        found.append((rows[stop - 1], stop))
    return found


def middle(folder, some):
    """A bound that some changes are above and some below, and none is near."""
    model = load(folder)
    depths = [heard(asked(model, passes=number), some)[0] for number in range(1, LAYERS + 1)]
    changes = sorted(
        np.abs(after - before).max() for two in pairwise(depths) for before, after in zip(*two, strict=True)
    )
    low, high = len(changes) // 4, 3 * len(changes) // 4
    widest = max(range(low, high), key=lambda at: changes[at + 1] - changes[at])
    return float(changes[widest] + changes[widest + 1]) / 2


def predict(*words):
    return CliRunner().invoke(app, ["predict", *map(str, words), "--device", "cpu"], catch_exceptions=False)


class TestPasses:
    @pytest.mark.parametrize("kind", list(HEADS))
    def test_fewer_passes_are_the_answers_of_a_shallower_model(self, kind, taught):
        model = load(taught(kind))
        network = build(replace(model.config, layers=3), (HEADS[kind][1],), 0)
        network.load_state_dict(model.network.state_dict())
        some = [Example(key="0", texts=("the film was fine", "in london by ann", "a book"))]
        some = [replace(each, texts=each.texts[: 3 if kind in ("choice", "tag") else 2]) for each in some]
        (here,), (there,), (full,) = (
            heard(each, some)[0]
            for each in (asked(model, passes=3), asked(replace(model, network=network)), asked(model))
        )
        if kind == "answer":
            assert here == there != full
        else:
            assert np.array_equal(here, there)
            assert not np.allclose(here, full)

    def test_python_and_the_command_line_give_the_same(self, taught, tmp_path):
        model, rows = load(taught()), [{"text": each.texts[0]} for each in examples(count=5)]
        file = write_rows(tmp_path / "a.jsonl", rows)
        for number in (2, 5):
            said = predict(taught(), file, "--to", tmp_path / f"{number}.jsonl", "--passes", number)
            assert "passes" not in said.stderr  # every example takes what was asked for
            told = model.classify([row["text"] for row in rows], passes=number)
            lines = [json.loads(line) for line in (tmp_path / f"{number}.jsonl").read_text().splitlines()]
            assert [line["probabilities"]["good"] for line in lines] == pytest.approx(
                [each.probabilities["good"] for each in told], abs=1e-5
            )
        assert (tmp_path / "2.jsonl").read_text() != (tmp_path / "5.jsonl").read_text()

    def test_every_question_in_python_takes_passes(self, taught):
        for kind, ask in (
            ("tag", lambda model, **more: model.tag(["ann went to rome"], **more)),
            ("answer", lambda model, **more: model.answer("who wrote it ?", "the book was by ann", **more)),
            ("choice", lambda model, **more: model.choose("the film", ["a", "in rome"], **more)),
        ):
            model = load(taught(kind))
            assert ask(model, passes=2) != ask(model)
            assert ask(model, passes=LAYERS) == ask(model)

    def test_layers_that_differ_are_refused_before_anything_is_read_or_written(self, taught, tmp_path):
        bert = taught(family="bert")
        with pytest.raises(UserError, match="passes = 2 needs a trunk whose layers are all the same one"):
            predict(bert, tmp_path / "none.csv", "--to", tmp_path / "o.csv", "--passes", 2)
        with pytest.raises(UserError, match="passes = 0 must be at least 1"):
            predict(taught(), tmp_path / "none.csv", "--to", tmp_path / "o.csv", "--passes", 0)
        with pytest.raises(UserError, match="passes = 2 needs a trunk"):
            load(bert).classify(["the film"], passes=2)
        assert not list(tmp_path.iterdir())


class TestSettling:
    @pytest.mark.parametrize("kind", SETTLING)
    @pytest.mark.parametrize("from_passes", [2, 4])
    def test_an_example_stops_at_the_first_pass_that_hardly_changes_its_answer(self, kind, from_passes, taught):
        folder, some = taught(kind), examples(kind)
        settle = Settle(middle(folder, some), from_passes)
        said, passes = heard(asked(load(folder), settle=settle), some)
        wanted = by_definition(folder, some, settle)
        assert passes == [stop for _, stop in wanted]
        assert len(set(passes)) > 1, "a test of one depth only would show little"
        assert min(passes) >= from_passes
        for mine, (right, _) in zip(said, wanted, strict=True):
            assert mine.shape == right.shape
            np.testing.assert_allclose(mine, right, atol=1e-5)

    @pytest.mark.parametrize("kind", SETTLING)
    def test_a_bound_that_nothing_meets_gives_the_full_answers(self, kind, taught):
        model, some = load(taught(kind)), examples(kind)
        said, passes = heard(asked(model, settle=Settle(1e-30)), some)
        assert set(passes) == {LAYERS}
        assert all(np.array_equal(a, b) for a, b in zip(said, heard(asked(model), some)[0], strict=True))

    def test_a_bound_of_one_stops_classes_at_the_first_chance(self, taught):
        model, some = load(taught()), examples()
        assert heard(asked(model, settle=Settle(1.0)), some)[1] == [2] * len(some)
        assert heard(asked(model, settle=Settle(5.0, 6)), some)[1] == [6] * len(some)

    def test_passes_are_the_most_there_are(self, taught):
        model, some = load(taught()), examples()
        said, passes = heard(asked(model, passes=5, settle=Settle(1e-30)), some)
        assert set(passes) == {5}
        assert np.array_equal(said, heard(asked(model, passes=5), some)[0])

    def test_a_pass_is_all_the_inner_groups_of_a_layer(self, taught):
        model, some = load(taught()), examples()
        network = build(replace(model.config, inner_groups=2), (HEADS["classify"][1],), 3)
        double = replace(model, network=network)
        said, passes = heard(asked(double, settle=Settle(1.0, 3)), some)
        assert set(passes) == {3}
        np.testing.assert_allclose(said, heard(asked(double, passes=3), some)[0], atol=1e-6)
        said, passes = heard(asked(double, settle=Settle(1e-30)), some)
        assert np.array_equal(said, heard(asked(double), some)[0])

    def test_the_windows_of_a_long_text_stop_together(self, taught):
        folder, some = taught(long="windows"), examples(longest=60)
        settle = Settle(middle(folder, some))
        said, passes = heard(asked(load(folder), settle=settle), some)
        wanted = by_definition(folder, some, settle)
        assert passes == [stop for _, stop in wanted]
        np.testing.assert_allclose(said, [right for right, _ in wanted], atol=1e-5)

    def test_nothing_is_computed_for_those_that_are_done(self, taught, monkeypatch):
        folder, some = taught(), examples()
        model = asked(load(folder), settle=Settle(middle(folder, some)))
        rows, run = [], Trunk.forward

        def counted(trunk, x, mask, passes=None):
            rows.append(len(x))
            return run(trunk, x, mask, passes)

        monkeypatch.setattr(Trunk, "forward", counted)
        _, passes = heard(model, some)
        assert len(rows) == max(passes)
        sizes = [len(each.texts[0].split()) + 2 for each in some]
        for number, row in enumerate(rows, 1):
            running = [size for size, taken in zip(sizes, passes, strict=True) if taken >= number]
            assert sum(running) <= row <= sum(running) + 32, "the pieces of those that run, and what fills up"
        assert rows[-1] < rows[0] / 2

    @pytest.mark.parametrize(("kind", "family", "words", "message"), [
        ("classify", "albert", ["--settle", "0"], "settle = 0 must be above 0"),
        ("classify", "albert", ["--settle", "-0.1"], "settle = -0.1 must be above 0"),
        ("classify", "albert", ["--settle", "nan"], "settle = nan must be above 0"),
        ("classify", "albert", ["--settle", "0.1", "--from-passes", "1"], "from_passes = 1 must be at least 2"),
        ("classify", "albert", ["--settle", "0.1", "--from-passes", "9"], "from_passes = 9 is beyond the 8 passes"),
        ("classify", "albert", ["--settle", "0.1", "--passes", "1"], "from_passes = 2 is beyond the 1 passes"),
        ("classify", "albert", ["--from-passes", "3"], "from_passes = 3 says when answers may settle; say settle"),
        ("classify", "bert", ["--settle", "0.1"], "settle = 0.1 needs a trunk whose layers are all the same one"),
        ("tag", "albert", ["--settle", "0.1"], "settle is for the kinds classify, several, regress, choice, and the"),
        ("answer", "albert", ["--settle", "0.1"], "the model was taught answer; leave it out"),
    ])  # fmt: skip
    def test_what_cannot_settle_is_one_line(self, kind, family, words, message, taught, tmp_path):
        with pytest.raises(UserError, match=message) as problem:
            predict(taught(kind, family), tmp_path / "none.csv", "--to", tmp_path / "o.csv", *words)
        assert "\n" not in str(problem.value)
        assert not list(tmp_path.iterdir())

    def test_python_settles_too(self, taught):
        model = load(taught())
        texts = [each.texts[0] for each in examples()]
        assert model.classify(texts, settle=1.0) == close(model.classify(texts, passes=2))
        assert model.classify(texts, settle=1.0, from_passes=5) == close(model.classify(texts, passes=5))
        chooser = load(taught("choice"))
        asked_for = ("the film was fine", ["a", "in rome", "the"])
        assert chooser.choose(*asked_for, settle=1.0, from_passes=3) == chooser.choose(*asked_for, passes=3)
        assert chooser.choose(*asked_for, settle=1.0) != chooser.choose(*asked_for)

    def test_a_file_is_predicted_with_the_passes_it_took(self, taught, tmp_path):
        folder, some = taught(), examples()
        bound = middle(folder, some)
        file = write_rows(tmp_path / "a.jsonl", [{"text": each.texts[0]} for each in some])
        done = predict(folder, file, "--to", tmp_path / "o.jsonl", "--settle", bound, "--json")
        said, passes = heard(asked(load(folder), settle=Settle(bound)), some)
        mean = sum(passes) / len(passes)
        assert 2 < mean < LAYERS
        assert f"an example took {mean:.2f} of at most 8 passes on average" in done.stderr
        assert json.loads(done.stdout)["passes"] == pytest.approx(mean)
        lines = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
        assert [line["probabilities"]["good"] for line in lines] == pytest.approx([row[1] for row in said], abs=2e-6)

    def test_the_passes_of_a_resumed_file_are_those_of_all_its_rows(self, taught, tmp_path):
        some = [Example(key=str(n), texts=("the film",)) for n in range(1500)]
        model = asked(load(taught()), settle=Settle(1.0, 3))
        with pytest.raises(UserError, match="goes on from row 1,024"):
            predict_file([model], iter(some), tmp_path / "o.csv", "csv", {}, stop)
        found = predict_file([model], iter(some), tmp_path / "o.csv", "csv", {})
        assert (found["resumed"], found["rows"], found["passes"]) == (1024, 1500, 3 * 1500)


def close(tolds):
    return [
        replace(
            each,
            probability=pytest.approx(each.probability, abs=1e-5),
            probabilities=pytest.approx(each.probabilities, abs=1e-5),
        )
        for each in tolds
    ]


def stop(_):
    raise InterruptedError("stopped")


@pytest.mark.parametrize(
    "other", [["--passes", "3"], [], ["--passes", "4", "--settle", "0.1"], ["--passes", "4", "--settle", "0.2"]]
)
def test_a_file_is_not_gone_on_with_at_another_depth(other, taught, tmp_path, monkeypatch):
    file = write_rows(tmp_path / "a.jsonl", [{"text": "the film"}] * 1100)
    to = tmp_path / "o.csv"
    first = ["--passes", "4", "--settle", "0.2", "--from-passes", "3"] if "--settle" in other else ["--passes", "4"]
    with monkeypatch.context() as patch:
        patch.setattr("litebert.cli.predict.typer.echo", lambda *_, **__: stop(0))
        with pytest.raises(UserError, match="the same command goes on from row"):
            predict(taught(), file, "--to", to, *first)
    with pytest.raises(UserError, match=r"left by another command \(other models, rows, format, passes or bound\)"):
        predict(taught(), file, "--to", to, *other)
    assert predict(taught(), file, "--to", to, *first).exit_code == 0
    assert len(to.read_text().splitlines()) == 1101
