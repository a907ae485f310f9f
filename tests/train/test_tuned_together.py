"""Fine-tuning by several processes: the run that one would have made."""

from dataclasses import replace

import pytest

from litebert.recipe import TaskConfig, TuneConfig, TuneRecipe
from litebert.strict import to_toml
from litebert.train.finetune import finetune, updates
from litebert.train.processes import Processes
from litebert.train.run import Run
from litebert.train.seat import take_seat
from litebert.train.seeds import finetune_seeds
from tests.toys import ALONE, KINDS, classes, toy_model, write_rows
from tests.train import worker
from tests.train.conftest import gap, metrics, weights

EXACT = TuneConfig(
    epochs=2, batch=8, rate=3e-3, log_every=1, dropout=0.0, head_dropout=0.0, precision="fp64", micro_batch=3
)
COLUMNS = {"texts": ("review",), "label": ("stars",)}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return toy_model(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def lesson(toy, tmp_path):
    """lesson("regress", …): a recipe for that kind of task. An epoch's last batch has a single example."""

    def make(kind="classify", tune=EXACT, rows=25, **more):
        make_rows, ending, *_ = KINDS[kind]
        train, dev = (write_rows(tmp_path / f"{kind}-{n}{ending}", make_rows(n, n)) for n in (rows, 11))
        columns = COLUMNS if kind == "classify" else {}
        task = TaskConfig(train=str(train), dev=str(dev), kind=kind, **columns, **more.pop("task", {}))
        return TuneRecipe(model=str(toy), task=task, tune=tune, **more)

    return make


@pytest.fixture
def by_several(together, tmp_path, toy):
    """by_several(recipe, 2): the folder of a run that so many processes made."""

    def run(recipe, count=2, *more, work=worker.command, before=(), code=0, told=None):
        file, folder = tmp_path / "recipe.toml", tmp_path / "together"
        file.write_text(to_toml(recipe))
        words = ["finetune", str(toy), "--recipe", str(file), "--to", str(folder), "--device", "cpu", *more]
        ends = together(work, "told", count, *before, *words)
        for found, said in ends:
            assert found == code, said[-3000:]
            assert "Traceback" not in said
        if told is not None:
            assert [said.strip().removeprefix("litebert: ") for _, said in ends] == list(told)
        return folder

    return run


def alone(recipe, folder):
    finetune(recipe, folder, False, ALONE, lambda _: None)
    return folder


def close(one, other):
    """The same weights, losses and scores."""
    assert gap(weights(one), weights(other)) < 1e-10
    a, b = ([figures(line) for line in metrics(folder)] for folder in (one, other))
    assert a == [pytest.approx(line, abs=1e-9) for line in b]


def figures(line):
    """A line of a run as one table of numbers and words."""
    scores = {f"{each['name']} {key}": each[key] for each in line.get("scores", ()) for key in ("value", "error")}
    return {key: value for key, value in line.items() if key != "scores"} | scores


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_teach_what_one_does(kind, lesson, by_several, tmp_path):
    recipe = lesson(kind)
    close(by_several(recipe), alone(recipe, tmp_path / "alone"))


def test_more_processes_than_examples_are_left_teach_what_one_does(lesson, by_several, tmp_path):
    recipe = lesson(tune=replace(EXACT, micro_batch=0), task={"class_weights": "balanced"})
    close(by_several(recipe, 3), alone(recipe, tmp_path / "alone"))


def test_each_process_has_a_share_of_every_batch_and_dropout_of_its_own(lesson, tmp_path):
    run = Run(tmp_path / "run")
    seat, _ = take_seat(lesson(tune=replace(EXACT, micro_batch=0)), run, ALONE, lambda _: None)
    run.close()
    whole, first, second = (
        next(updates(replace(seat, processes=Processes(ALONE.device, rank, ranks)), 0))
        for rank, ranks in ((0, 1), (0, 2), (1, 2))
    )
    assert first.seed != second.seed
    pieces = [update.parts[0].batch.input_ids.tolist() for update in (whole, first, second)]
    assert sorted(pieces[0]) == sorted(pieces[1] + pieces[2])
    assert [update.parts[0].batch.units for update in (whole, first, second)] == [8, 4, 4]


def test_one_that_is_asked_to_stop_stops_all_and_one_process_goes_on_with_their_run(lesson, by_several, tmp_path, toy):
    recipe = lesson()
    folder = by_several(recipe, work=worker.one_is_asked_to_stop, before=("5",), code=143)
    assert [each.name for each in (folder / "checkpoints").iterdir()] == ["step-00000005"]
    assert not (folder / "model").exists()
    finetune(None, folder, True, ALONE, lambda _: None)
    close(folder, alone(recipe, tmp_path / "alone"))


def test_seeds_by_two_processes_are_those_of_one(lesson, by_several, tmp_path):
    recipe = lesson()
    folder = by_several(recipe, 2, "--seeds", "2")
    found = finetune_seeds(recipe, tmp_path / "alone", 2, False, ALONE, lambda _: None)
    for seed in range(2):
        close(folder / f"seed-{seed}", tmp_path / "alone" / f"seed-{seed}")
    assert gap(weights(folder), weights(folder / f"seed-{found['best_seed']}")) == 0


def test_a_mistake_that_all_find_is_told_once(lesson, by_several):
    recipe = lesson(task={"data": "nowhere"})
    folder = by_several(
        recipe, code=2, told=("--data nowhere is for a benchmark; of your own give --train and --dev", "")
    )
    assert not folder.exists()


def test_machines_that_hold_other_examples_are_refused(lesson, by_several, tmp_path):
    other = write_rows(tmp_path / "other.csv", classes(25, 1))
    message = "the examples are not the same on every machine; copy the first one's to all of them"
    folder = by_several(lesson(), work=worker.one_has_other_examples, before=(str(other),), code=2, told=(message, ""))
    assert not folder.exists()
