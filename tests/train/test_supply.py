"""A phase of several lengths: its steps take them in turn, and a run of such phases resumes bit for bit."""

import json
import re
import shutil
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import pytest
import torch

from litebert.cli.train import as_text
from litebert.config import UserError
from litebert.corpus.batches import Place
from litebert.recipe import Phase, Recipe, apply_sets
from litebert.strict import to_toml
from litebert.text.tokenizer import Tokenizer
from litebert.train import pretrain
from litebert.train.objective import pretraining_heads
from litebert.train.processes import joined
from litebert.train.schedule import stages
from litebert.train.session import Session
from litebert.train.start import Prepared, resolve
from litebert.train.steps import Done, Step
from litebert.train.supply import first_places, updates
from litebert.train.trainee import Snapshot
from tests.train.conftest import metrics, same, weights

SHORT = {"passes": 2, "length": 16, "batch": 16, "rate": 0.01}
BOTH = {"passes": 4, "length": 16, "batch": 16, "rate": 0.01, "turns": [64, 16, 32]}


@pytest.fixture
def session(table):
    with joined("cpu") as processes:
        recipe = resolve(apply_sets(table(phases=[SHORT, BOTH]), []), processes)
        tokenizer = Tokenizer.load(f"{recipe.data.shards}/tokenizer")
        yield Session(recipe, tokenizer, processes, None, lambda _: None)


def test_steps_take_the_lengths_in_turn_in_batches_of_as_many_pieces(session):
    plan = stages(session.recipe.phases, 40)
    places = first_places(plan[1], plan, {16: Place(3, 5)})
    assert places == {16: Place(3, 5), 32: Place(4, 0), 64: Place(4, 0)}  # a length that goes on goes on where it was
    found = list(islice(updates(session, plan[1], plan, plan[1].first, places), 9))
    assert [each.parts[0].micro.packed.longest for each in found] == [16, 64, 16, 32, 16, 64, 16, 32, 16]
    examples = [sum(part.micro.packed.examples for part in each.parts) for each in found]
    assert examples == [16, 4, 16, 8, 16, 4, 16, 8, 16]
    assert [float(each.parts[0].weights[1]) for each in found[:4]] == [1 / 16, 1 / 4, 1 / 16, 1 / 8]
    assert {length: place.index for length, place in found[-1].places.items()} == {16: 5 + 5 * 16, 32: 16, 64: 8}
    for at in (1, 6):  # from any step on, given its places
        again = next(updates(session, plan[1], plan, plan[1].first + at, found[at - 1].places))
        for one, other in zip(again.parts, found[at].parts, strict=True):
            assert torch.equal(one.micro.block, other.micro.block)


def test_a_length_that_comes_back_has_an_epoch_that_none_has_had():
    plan = stages([Phase(length=64, batch=8, turns=(16,)), Phase(length=64, batch=8), Phase(length=16, batch=8)], 30)
    places = first_places(plan[1], plan, {64: Place(1, 7), 16: Place(5, 3)})
    assert places[64] == Place(1, 7)
    assert first_places(plan[2], plan, places)[16] == Place(6, 0)


def test_what_a_step_takes_is_measured_by_whole_rounds(session, monkeypatch):
    """With a clock that takes a step of a length to last as long as it."""
    plan, now, lengths = stages(session.recipe.phases, 400), [0.0], []

    class Norm:
        def item(self):
            now[0] += sum(lengths)
            lengths.clear()

    def steps(feed, *_):
        for update in feed:
            lengths.append(update.parts[0].micro.packed.longest)
            yield Step(update, Done(torch.zeros(1), Norm(), torch.ones(())))

    monkeypatch.setattr(pretrain, "take_steps", steps)
    monkeypatch.setattr(pretrain.time, "perf_counter", lambda: now[0])
    snapshot = Snapshot(session.recipe.model, pretraining_heads(session.recipe.model, session.recipe.data), {}, {}, 0)
    places = first_places(plan[1], plan, {})
    monkeypatch.setattr(pretrain, "enter", lambda *_: (SimpleNamespace(optimizer=None), places))
    monkeypatch.setattr(pretrain, "work_of", lambda *_: None)
    prepared = Prepared(session.tokenizer, snapshot, 0, {}, None, (), "")
    for minutes in (0.001, 1.0, 1000.0):
        run = replace(session.recipe.run, steps=0, budget_minutes=minutes)
        timed = replace(session, recipe=replace(session.recipe, run=run))
        assert pretrain.seconds_a_step(timed, plan[1], plan, prepared) == (16 + 64 + 16 + 32) / 4


def test_a_phase_of_few_steps_is_measured_too(train):
    tail = SHORT | {"share": 0.001}
    folder, told = train(phases=[SHORT, tail], run={"steps": 0, "budget_minutes": 0.02})
    assert json.loads((folder / "plan.json").read_text())["steps"] > 2
    assert told[-1]["text"].startswith("the model is in")


def test_other_processes_make_the_same_batches(session):
    plan = stages(session.recipe.phases, 40)
    places = first_places(plan[1], plan, {16: Place(0, 0)})
    found = {}
    for workers in (0, 5):  # two of each length
        recipe = replace(session.recipe, run=replace(session.recipe.run, workers=workers))
        source = updates(replace(session, recipe=recipe), plan[1], plan, plan[1].first, places)
        found[workers] = [each.parts[0].micro.block for each in islice(source, 6)]
        source.close()
    assert all(torch.equal(one, other) for one, other in zip(found[0], found[5], strict=True))


def test_a_run_of_several_lengths_resumes_bit_for_bit(train):
    settings = {"run": {"steps": 22, "save_every": 1, "log_every": 1, "keep": 30}, "phases": [SHORT, BOTH]}
    whole, told = train(**settings)
    assert list(told[-2]["turns"]) == ["32", "64"]  # beside its first length, which is the run's own
    assert re.search(r"; length 32: masked [\d.]+ %, order [\d.]+ %; length 64: masked", as_text(told[-2]))
    assert [line["phase"] for line in told if line["kind"] == "train"] == [1] * 11 + [2] * 11
    for number, last in enumerate((5, 11, 13, 20)):  # 11: where the phase changes; then within a round of lengths
        half = whole.parent / f"half-{number}"
        shutil.copytree(whole, half)
        shutil.rmtree(half / "model")
        for checkpoint in (half / "checkpoints").iterdir():
            if int(checkpoint.name.removeprefix("step-")) > last:
                shutil.rmtree(checkpoint)
        _, told = train(folder=half, resume=True, **settings)
        assert told[0]["text"] == f"going on from step {last}"
        assert same(weights(whole), weights(half))
        assert metrics(whole) == metrics(half)


def test_a_checkpoint_of_an_earlier_version_knows_one_place(train):
    settings = {"run": {"steps": 20, "save_every": 5}}
    whole, _ = train(**settings)
    half = whole.parent / "half"
    shutil.copytree(whole, half)
    shutil.rmtree(half / "model")
    shutil.rmtree(half / "checkpoints" / "step-00000020")
    file = half / "checkpoints" / "step-00000015" / "state.json"
    state = json.loads(file.read_text())
    state["place"] = state.pop("places")["32"]
    file.write_text(json.dumps(state))
    train(folder=half, resume=True, **settings)
    assert same(weights(whole), weights(half))


def test_a_step_of_another_length_is_never_another_ones_recording(session):
    """Without pairs two lengths may come to arrays of the same sizes."""
    plan = stages(session.recipe.phases, 40)
    part = next(updates(session, plan[0], plan, 0, first_places(plan[0], plan, {}))).parts[0]
    packed = part.micro.packed
    other = replace(part, micro=replace(part.micro, packed=replace(packed, longest=2 * packed.longest)))
    assert part.shape != other.shape


def test_a_recipe_says_its_turns():
    recipe = Recipe(model=apply_sets({"model": {"preset": "albert-tiny"}}, []).model, phases=(Phase(turns=(128, 64)),))
    assert "turns = [128, 64]" in to_toml(recipe)
    assert [recipe.examples(recipe.phases[0], length).length for length in (0, 128, 64)] == [512, 128, 64]


@pytest.mark.parametrize(
    ("phase", "sentence"),
    [
        (BOTH | {"turns": [10]}, "the 16 x 16 pieces of a batch are no whole number of examples of length 10"),
        (BOTH | {"turns": [4]}, "turns = [4]: a length must be at least 8"),
        (BOTH | {"turns": [128]}, "a phase of length 128 does not fit the model's 64 positions"),
    ],
)
def test_lengths_that_do_not_fit_are_one_sentence(train, phase, sentence):
    with pytest.raises(UserError) as mistake:
        train(phases=[phase])
    assert sentence in str(mistake.value)
    assert "\n" not in str(mistake.value)
