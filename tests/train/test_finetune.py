"""Fine-tuning: every kind of task from a user's own file to the same answers after reloading; runs that resume."""

import csv
import json
import os
import signal
from copy import deepcopy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode
from typer.testing import CliRunner

from litebert.cli import app
from litebert.config import HeadConfig, Reading, UserError
from litebert.files import swap, unswap
from litebert.infer.batch import to_batch
from litebert.infer.model import load
from litebert.infer.predict import asked, listen
from litebert.model import layers
from litebert.model.weights import build
from litebert.recipe import TaskConfig, TuneConfig, TuneRecipe, changed, read_recipe, recipe_names
from litebert.strict import parse
from litebert.tasks.answers import decide
from litebert.tasks.features import units
from litebert.tasks.own import infer_task, read_own
from litebert.train.finetune import finetune
from litebert.train.lesson import layer_scale, pupil, read_lesson
from litebert.train.seeds import finetune_seeds
from litebert.train.stopping import Stopped
from litebert.train.tutor import Part, Tutor, weight_of
from tests.toys import ALONE, KINDS, choices, classes, questions, several, tags, toy_model, write_rows

QUICK = TuneConfig(epochs=6, batch=8, rate=3e-3, log_every=20, head_dropout=0.0)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return toy_model(tmp_path_factory.mktemp("toy"))


def quiet(_):
    pass


def teach(toy, folder, file, tune=QUICK, say=quiet, reading=None, resume=False, **task):
    recipe = TuneRecipe(
        model=str(toy), task=TaskConfig(train=str(file), **task), tune=tune, reading=reading or Reading()
    )
    return finetune(recipe, folder, resume, ALONE, say)


@pytest.mark.parametrize("kind", KINDS)
def test_a_users_own_file_from_training_to_the_same_predictions_after_reloading(toy, tmp_path, kind):
    rows, ending, options, floor = KINDS[kind]
    train, dev = (write_rows(tmp_path / f"{name}{ending}", rows(n, n)) for name, n in (("train", 240), ("dev", 60)))
    run, out = tmp_path / "run", tmp_path / "out.jsonl"
    settings = [f"tune.{key}={value}" for key, value in (("epochs", 8), ("batch", 8), ("rate", 3e-3))]
    changes = [part for each in settings for part in ("--set", each)]
    files = ["--train", str(train), "--dev", str(dev), *options]
    said = CliRunner().invoke(app, ["finetune", str(toy), *files, "--to", str(run), "--json", *changes])
    assert said.exit_code == 0, said.output
    final = json.loads(said.stdout)
    assert f"task: {kind}" in said.stderr
    assert final["scores"][0]["value"] >= floor
    texts = [part for name in options[1:2] for part in ("--text", name)]
    told = CliRunner().invoke(app, ["predict", str(run), str(dev), "--to", str(out), *texts, "--json"])
    assert told.exit_code == 0, told.output
    written = [json.loads(line)["prediction"] for line in out.read_text().splitlines()]
    model = load(run)
    task = model.taught.task
    assert task.kind == kind
    again = [decide(task, said) for _, said, _ in listen([asked(model)], read_own(dev, task))]
    assert written == [list(each) if isinstance(each, tuple) else each for each in again]
    model.save(tmp_path / "copy")
    copied = load(tmp_path / "copy")
    assert copied.taught == model.taught
    assert [decide(task, said) for _, said, _ in listen([asked(copied)], read_own(dev, task))] == again


def test_questions_without_an_answer_get_none_and_the_threshold_travels_with_the_model(toy, tmp_path):
    train, dev = (write_rows(tmp_path / f"{n}.jsonl", questions(n, n, 0.4)) for n in (400, 80))
    found = teach(toy, tmp_path / "run", train, dev=str(dev), tune=replace(QUICK, epochs=10))
    assert found["scores"][0]["value"] > 0.85
    model = load(tmp_path / "run")
    assert model.taught.task.unanswerable
    assert "span-beam" in model.heads
    guesses = [
        decide(model.taught.task, said) for _, said, _ in listen([asked(model)], read_own(dev, model.taught.task))
    ]
    assert 0.15 < np.mean([guess == "" for guess in guesses]) < 0.65
    never = replace(model.taught.task, threshold=1e9)
    assert all(decide(never, said) for _, said, _ in listen([asked(model)], read_own(dev, model.taught.task)))


@pytest.mark.parametrize("kind", KINDS)
def test_unpadded_batches_give_the_loss_of_padded_ones(toy, tmp_path, kind):
    """Twenty steps of both, in float32 without dropout: the same losses within 1e-5, and the same weights."""
    rows, ending, options, _ = KINDS[kind]
    file = write_rows(tmp_path / f"a{ending}", rows(160, 3))
    task = infer_task(file, options[1:2], options[3:4])
    losses = {}
    for side in ("packed", "padded"):
        model = load(toy)
        recipe = TuneRecipe(model=str(toy), task=TaskConfig(train=str(file), texts=task.texts, label=task.label))
        lesson = read_lesson(recipe, model)
        network, _ = pupil(model, lesson.taught.task, replace(QUICK, dropout=0.0))
        tutor, losses[side] = Tutor(network, lesson.taught.task).train(), []
        optimizer = torch.optim.SGD(tutor.parameters(), lr=0.01)
        for step in range(20):
            some = [lesson.train[(8 * step + at) % len(lesson.train)] for at in range(8)]
            whole = sum(weight_of(unit, task, None) for unit in some)
            batch = to_batch(some, task, torch.device("cpu"))
            loss = (tutor(batch) if side == "packed" else padded_loss(tutor, batch)) / whole
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[side].append(loss.item())
    assert np.allclose(losses["packed"], losses["padded"], rtol=0, atol=1e-5)
    assert losses["packed"][-1] < losses["packed"][0]


def padded_loss(tutor, batch):
    """The same loss through a padded batch and an attention mask: the encoder alone is swapped."""
    encoder = tutor.network.encoder
    pads = torch.zeros(len(batch.unit), batch.width, dtype=torch.long)
    lengths = batch.boundaries.offsets.diff()[: batch.rows]
    mask = torch.arange(batch.width) < lengths[:, None]
    pieces = int(mask.sum())
    real = (row[:pieces] for row in (batch.input_ids, batch.token_type_ids))
    ids, types = (pads.masked_scatter(mask, row) for row in real)
    filled = len(batch.input_ids) - pieces

    def forward(*_, **__):
        states = type(encoder).forward(encoder, ids, mask.long(), types)[mask]
        return torch.cat([states, states.new_zeros(filled, states.shape[1])])

    encoder.forward = forward
    try:
        return tutor(batch)
    finally:
        del encoder.forward


def test_micro_batches_give_the_update_of_the_whole_batch(toy, tmp_path):
    file = write_rows(tmp_path / "a.jsonl", tags(64))
    for name, size in (("whole", 0), ("parts", 3)):
        teach(toy, tmp_path / name, file, tune=replace(QUICK, steps=6, micro_batch=size, precision="fp64"))
    whole, parts = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "parts"))
    assert all(torch.allclose(whole[name].double(), parts[name].double(), atol=1e-6) for name in whole)


@pytest.mark.parametrize("kind", ["classify", "tag", "answer"])  # the last two leave the pooler without a gradient
def test_a_run_that_was_stopped_ends_as_if_it_had_not_been(toy, tmp_path, killed_at_second_look, kind):
    rows, ending, options, _ = KINDS[kind]
    file = write_rows(tmp_path / f"a{ending}", rows(120))
    tune = replace(QUICK, epochs=4, dropout=0.1, head_dropout=0.1)
    columns = {"texts": options[1:2], "label": options[3:]}
    teach(toy, tmp_path / "whole", file, tune=tune, **columns)
    killed_at_second_look(lambda: teach(toy, tmp_path / "cut", file, tune=tune, **columns))
    notes = []
    again = finetune(None, tmp_path / "cut", True, ALONE, notes.append)
    assert any("going on from step" in note.get("text", "") for note in notes)
    one, other = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert again["scores"] == finetune(None, tmp_path / "whole", True, ALONE, quiet)["scores"]


@pytest.mark.parametrize("moment", [1, 4])  # between two epochs; after the last step
def test_a_run_that_is_asked_to_stop_while_it_scores_owes_that_score(toy, tmp_path, monkeypatch, moment):
    file = write_rows(tmp_path / "a.csv", classes(120))
    tune, columns = replace(QUICK, epochs=4), {"texts": ("review",), "label": ("stars",)}
    teach(toy, tmp_path / "whole", file, tune=tune, **columns)
    from litebert.train import finetune as module

    real, looks, told = module.listen, [], []

    def asks_to_stop(models, examples):
        looks.append(len(looks) + 1)
        for number, each in enumerate(real(models, examples)):
            if looks[-1] == moment and number == 5:
                os.kill(os.getpid(), signal.SIGTERM)
            yield each

    monkeypatch.setattr(module, "listen", asks_to_stop)
    with pytest.raises(Stopped):
        teach(toy, tmp_path / "cut", file, tune=tune, say=told.append, **columns)
    assert sum(line["kind"] == "dev" for line in told) == moment - 1  # the last was not scored to its end
    finetune(None, tmp_path / "cut", True, ALONE, quiet)
    assert looks[-1] == 5  # the owed one again, and those that followed
    one, other = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    lines = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "cut")]
    dev = [[(x["step"], x["scores"]) for x in map(json.loads, part) if x["kind"] == "dev"] for part in lines]
    assert dev[0] == dev[1]
    assert len(dev[0]) == 4


class NothingWaits(TorchDispatchMode):
    """Fails where a GPU would have to be waited for: a recording cannot hold such a thing."""

    WAITS = ("_local_scalar_dense", "nonzero", "bincount", "masked_select", "unique", "_unique2", "equal")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func.overloadpacket.__name__ not in self.WAITS, func
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", [*KINDS, "windows", "unanswerable"])
def test_batches_of_few_shapes_can_be_replayed(toy, tmp_path, monkeypatch, kind):
    """What a recorded step does: one batch's tensors copied over those of another of its shape give the loss and the
    gradient of the first, without waiting for anything on the way; and both are those of the batch as it was."""
    reading = Reading()
    if kind in KINDS:
        rows, ending, options, _ = KINDS[kind]
    elif kind == "windows":
        rows, ending, options, reading = (
            classes,
            ".csv",
            KINDS["classify"][2],
            Reading(length=10, long="windows", stride=4),
        )
    else:
        rows, ending, options = partial(questions, unanswerable=0.4), ".jsonl", ()
    file = write_rows(tmp_path / f"a{ending}", rows(160, 3))
    task = infer_task(file, options[1:2], options[3:4])
    model = load(toy)
    config = TaskConfig(train=str(file), texts=task.texts, label=task.label)
    lesson = read_lesson(TuneRecipe(model=str(toy), task=config, reading=reading), model)
    network, _ = pupil(model, lesson.taught.task, replace(QUICK, dropout=0.0))
    tutor = Tutor(network, lesson.taught.task).train()
    some = [lesson.train[first : first + 8] for first in range(0, 96, 8)]
    plain = [to_batch(units, task, torch.device("cpu")) for units in some]
    wanted = [gradients(tutor, batch) for batch in plain]
    monkeypatch.setattr(layers, "ragged_attention", layers.widened_attention)  # as a GPU does it with dropout
    even = [Part(to_batch(units, task, torch.device("cpu"), few=64), torch.tensor(1.0)) for units in some]
    assert len({part.shape for part in even}) <= len(even) / 2
    static = {part.shape: deepcopy(part) for part in even}
    for part, (loss, wants) in zip(even, wanted, strict=True):
        mine = static[part.shape]
        for ours, theirs in zip(mine.tensors(), part.tensors(), strict=True):
            assert ours.shape == theirs.shape
            ours.copy_(theirs)
        with NothingWaits():
            found, gradient = gradients(tutor, mine.batch)
        torch.testing.assert_close(found, loss, rtol=1e-5, atol=1e-5)
        for name, each in wants.items():
            torch.testing.assert_close(gradient[name], each, rtol=1e-3, atol=1e-5)


def test_round_widths_stay_within_what_is_read(toy, tmp_path):
    """A model of forty positions has no room for a row of sixty-four."""
    small = toy_model(tmp_path / "small", positions=40)
    file = write_rows(tmp_path / "a.csv", [{"text": "the film was fine " * 9, "label": str(n % 2)} for n in range(8)])
    task = infer_task(file, (), ())
    recipe = TuneRecipe(model=str(small), task=TaskConfig(train=str(file)))
    lesson = read_lesson(recipe, load(small))
    network, _ = pupil(load(small), task, QUICK)
    batch = to_batch(lesson.train[:4], task, torch.device("cpu"), few=40)
    assert batch.width == 40 or batch.width % 32 == 0
    assert batch.width <= 40
    assert torch.isfinite(Tutor(network, task)(batch))
    assert to_batch(lesson.train[:4], task, torch.device("cpu"), few=128).width == 64


@pytest.mark.skipif(not torch.cuda.is_available(), reason="steps are recorded on a GPU")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_recorded_steps_teach_what_others_do_on_a_gpu(toy, tmp_path, kind, precision):
    """The same losses without dropout; with it other ones, and the same again from the same seed."""
    rows, ending, options, _ = KINDS[kind]
    file = write_rows(tmp_path / f"a{ending}", rows(160, 3))
    runs = {"plain": ("off", 0.0), "recorded": ("auto", 0.0), "dropped": ("auto", 0.3), "again": ("auto", 0.3)}
    losses = {}
    for name, (capture, dropout) in runs.items():
        tune = replace(QUICK, steps=60, dropout=dropout, capture=capture, precision=precision, log_every=1, rate=1e-4)
        task = TaskConfig(train=str(file), texts=options[1:2], label=options[3:4])
        finetune(TuneRecipe(model=str(toy), task=task, tune=tune), tmp_path / name, False, "cuda", quiet)
        lines = map(json.loads, (tmp_path / name / "metrics.jsonl").read_text().splitlines())
        losses[name] = np.array([line["loss"] for line in lines if line["kind"] == "tune"])
    bound = 1e-4 if precision == "fp32" else 0.02
    assert np.allclose(losses["plain"], losses["recorded"], rtol=bound, atol=bound)
    assert np.allclose(losses["dropped"], losses["again"], rtol=bound, atol=bound)
    assert np.abs(losses["dropped"] - losses["recorded"]).min() > 0


def gradients(tutor, batch):
    tutor.zero_grad()
    loss = tutor(batch)
    loss.backward()
    return loss.detach(), {name: each.grad.clone() for name, each in tutor.named_parameters() if each.grad is not None}


def test_the_best_checkpoint_is_kept_and_patience_ends_the_run(toy, tmp_path, monkeypatch):
    from litebert.train import finetune as module

    values = iter([0.5, 0.9, 0.7, 0.6, 0.8, 0.95])
    kept = {}
    real = module.score

    def scripted(seat):
        taught, found = real(seat)
        value = next(values)
        kept[value] = {name: each.clone() for name, each in seat.tutor.network.state_dict().items()}
        return taught, [{**found[0], "value": value}]

    monkeypatch.setattr(module, "score", scripted)
    file = write_rows(tmp_path / "a.csv", classes(80))
    columns = {"texts": ("review",), "label": ("stars",)}
    found = teach(toy, tmp_path / "run", file, tune=replace(QUICK, patience=2), **columns)
    assert found["scores"][0]["value"] == 0.9
    assert found["best_step"] == 18
    assert found["step"] == 36
    saved = load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert all(torch.equal(saved[name], kept[0.9][name]) for name in saved)


def test_seeds_report_median_best_and_spread_and_the_best_model_is_kept(toy, tmp_path):
    file = write_rows(tmp_path / "a.csv", classes(100))
    recipe = TuneRecipe(
        model=str(toy),
        task=TaskConfig(train=str(file), texts=("review",), label=("stars",)),
        tune=replace(QUICK, steps=6, rate=1e-3),
    )
    found = finetune_seeds(recipe, tmp_path / "runs", 3, False, ALONE, quiet)
    lines = [finetune(None, tmp_path / "runs" / f"seed-{seed}", True, ALONE, quiet) for seed in range(3)]
    values = [line["scores"][0]["value"] for line in lines]
    assert found["scores"]["accuracy"]["median"] == sorted(values)[1]
    assert found["scores"]["accuracy"]["best"] == max(values)
    assert json.loads((tmp_path / "runs" / "seeds.json").read_text()) == found
    assert found["scores"]["accuracy"]["spread"] == pytest.approx(np.std(values, ddof=1))
    best, kept = (
        load_file(tmp_path / "runs" / name / "model.safetensors")
        for name in (f"seed-{found['best_seed']}/model", "model")
    )
    assert all(torch.equal(best[name], kept[name]) for name in best)


def test_a_head_that_answers_the_same_is_kept_and_another_is_replaced_and_it_is_said(toy, tmp_path):
    first = write_rows(tmp_path / "a.csv", classes(60))
    columns = {"texts": ("review",), "label": ("stars",)}
    teach(toy, tmp_path / "one", first, tune=replace(QUICK, steps=5), **columns)
    model = load(tmp_path / "one")
    task = model.taught.task
    same, said = pupil(model, task, QUICK)
    assert "kept" in said[0]
    assert torch.equal(same.heads["classify"].out.weight, model.heads["classify"].out.weight)
    _, said = pupil(model, replace(task, texts=("sentence",)), QUICK)  # the same names, another question
    assert "a fresh classify head in the place of classify (2 labels)" in said[0]
    other, said = pupil(model, replace(task, labels=("a", "b", "c")), QUICK)
    assert "a fresh classify head in the place of classify (2 labels)" in said[0]
    assert other.heads["classify"].out.weight.shape[0] == 3
    assert torch.equal(other.encoder.trunk.ffn[0].up.weight, model.encoder.trunk.ffn[0].up.weight)


def test_a_pre_trained_models_heads_are_replaced(toy, tmp_path):
    model = load(toy)
    heads = [HeadConfig(kind="mlm"), HeadConfig(kind="pair")]
    network = build(model.config, heads, 1)
    replace(model, network=network).save(tmp_path / "pretrained")
    file = write_rows(tmp_path / "a.csv", classes(40))
    notes = []
    teach(tmp_path / "pretrained", tmp_path / "run", file, tune=replace(QUICK, steps=2), say=notes.append,
          texts=("review",), label=("stars",))  # fmt: skip
    assert any("a fresh classify head in the place of mlm, pair" in note.get("text", "") for note in notes)


def test_a_run_killed_between_its_last_step_and_its_model_ends_when_resumed(toy, tmp_path, monkeypatch):
    from litebert.train import finetune as module

    file = write_rows(tmp_path / "a.csv", classes(60))
    real = module.finish

    def breaks(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "finish", breaks)
    columns = {"texts": ("review",), "label": ("stars",)}
    for name, patience in (("a", 0), ("b", 1)):
        with pytest.raises(KeyboardInterrupt):
            teach(
                toy,
                tmp_path / name,
                file,
                tune=replace(QUICK, steps=30, evaluate_every=2, patience=patience),
                **columns,
            )
    monkeypatch.setattr(module, "finish", real)
    steps = [finetune(None, tmp_path / name, True, ALONE, quiet)["step"] for name in ("a", "b")]
    assert steps[0] == 30
    assert steps[1] < 30


def test_a_run_goes_on_from_another_folder(toy, tmp_path, monkeypatch):
    from litebert.train import finetune as module

    write_rows(tmp_path / "a.csv", classes(60))
    monkeypatch.chdir(tmp_path)
    real = module.finish

    def breaks(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "finish", breaks)
    with pytest.raises(KeyboardInterrupt):
        teach(toy, tmp_path / "run", "a.csv", tune=replace(QUICK, steps=4), texts=("review",), label=("stars",))
    monkeypatch.setattr(module, "finish", real)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert finetune(None, tmp_path / "run", True, ALONE, quiet)["step"] == 4


def test_out_of_memory_is_one_line(toy, tmp_path, monkeypatch):
    from litebert.train import finetune as module

    def breaks(*_, **__):
        raise RuntimeError("CUDA out of memory. Tried to allocate")

    monkeypatch.setattr(module, "one_step", breaks)
    file = write_rows(tmp_path / "a.csv", classes(60))
    with pytest.raises(UserError, match=r"out of memory; set tune\.micro_batch lower"):
        teach(toy, tmp_path / "run", file, texts=("review",), label=("stars",))


def test_seeds_are_scored_on_the_same_examples(toy, tmp_path):
    file = write_rows(tmp_path / "a.csv", classes(100))
    task = TaskConfig(train=str(file), texts=("review",), label=("stars",))
    held = [
        [
            each.key
            for each in read_lesson(TuneRecipe(model=str(toy), task=task, tune=TuneConfig(seed=seed)), load(toy)).dev
        ]
        for seed in (0, 1)
    ]
    assert held[0] == held[1]
    other = TuneRecipe(model=str(toy), task=replace(task, split_seed=1))
    assert [each.key for each in read_lesson(other, load(toy)).dev] != held[0]


def test_killed_while_its_best_model_takes_the_place_of_another_a_run_has_one_of_them(toy, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def breaks(made, to):
        if to.name == "best" and to.exists():
            to.rename(to.with_name(".best.before"))
            raise Killed
        swap(made, to)

    file = write_rows(tmp_path / "a.csv", classes(100))
    columns = {"texts": ("review",), "label": ("stars",)}
    slow = replace(QUICK, steps=12, evaluate_every=2, rate=1e-3)
    expected = teach(toy, tmp_path / "whole", file, tune=slow, **columns)
    assert expected["best_step"] > 2  # so that one takes the place of another
    with monkeypatch.context() as patch:
        patch.setattr("litebert.train.run.swap", breaks)
        with pytest.raises(Killed):
            teach(toy, tmp_path / "run", file, tune=slow, **columns)
    assert not (tmp_path / "run" / "best").exists()
    back = []
    monkeypatch.setattr("litebert.train.seat.unswap", lambda to: unswap(to) or back.append(to.exists()))
    again = finetune(None, tmp_path / "run", True, ALONE, quiet)
    assert back == [True]  # the old one, whether or not the next look finds a better
    assert again == expected
    ours, theirs = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("run", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert not list((tmp_path / "run").glob(".best*"))


def test_what_was_cut_for_one_seed_serves_the_next_unless_anything_differs(toy, tmp_path):
    rows = [row | {"review": f"{row['review']} {row['review']}"} for row in classes(100)]
    file = write_rows(tmp_path / "a.csv", rows)
    task = TaskConfig(train=str(file), texts=("review",), label=("stars",))

    def made(seed=0, **other):
        return read_lesson(TuneRecipe(model=str(toy), task=task, tune=TuneConfig(seed=seed), **other), load(toy)).train

    first = made()
    assert made(seed=1) is first
    shorter = made(reading=Reading(length=8))
    assert max(unit.pieces for unit in shorter) == 8 < max(unit.pieces for unit in first)
    write_rows(file, classes(100, seed=1))
    assert [unit.ids[0].tolist() for unit in made()] != [unit.ids[0].tolist() for unit in first]


def test_a_checkpoint_of_a_run_that_goes_on_knows_its_task(toy, tmp_path, monkeypatch):
    from litebert.train import finetune as module

    def breaks(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "finish", breaks)
    file = write_rows(tmp_path / "a.csv", classes(60))
    with pytest.raises(KeyboardInterrupt):
        teach(toy, tmp_path / "run", file, tune=replace(QUICK, steps=4), texts=("review",), label=("stars",))
    model = load(tmp_path / "run")
    assert model.taught.task.texts == ("review",)
    assert model.taught.reading.length == 64


def test_frozen_layers_stay_and_a_shared_trunk_is_frozen_whole_or_not_at_all(toy, tmp_path):
    file = write_rows(tmp_path / "a.csv", classes(60))
    columns = {"texts": ("review",), "label": ("stars",)}
    teach(toy, tmp_path / "run", file, tune=replace(QUICK, steps=5, freeze=1), **columns)
    before, after = load(toy).encoder.state_dict(), load(tmp_path / "run").encoder.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert not any(name.startswith(("embeddings", "trunk.attention.0", "trunk.ffn.0")) for name in moved)
    assert any(name.startswith("trunk.ffn.1") for name in moved)
    albert = toy_model(tmp_path / "albert", "albert")
    with pytest.raises(UserError, match="share their weights"):
        teach(albert, tmp_path / "no", file, tune=replace(QUICK, steps=5, freeze=1), **columns)
    assert not (tmp_path / "no").exists()


def test_a_shared_layer_is_taught_at_the_depth_that_is_asked_for_and_keeps_it(toy, tmp_path):
    file = write_rows(tmp_path / "a.csv", classes(60))
    columns, told = {"texts": ("review",), "label": ("stars",)}, []
    albert = toy_model(tmp_path / "albert", "albert")
    deep = load(albert).config.layers
    for passes in (0, 1):
        teach(
            albert,
            tmp_path / f"{passes}",
            file,
            tune=replace(QUICK, steps=5, passes=passes),
            say=told.append,
            **columns,
        )
    assert any(line.get("text") == f"passes of the shared layer: 1, in the place of {deep}" for line in told)
    made = [load(tmp_path / name) for name in "01"]
    assert [model.config.layers for model in made] == [deep, 1]
    before, after = (model.encoder.state_dict() for model in made)
    assert before.keys() == after.keys()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    with pytest.raises(UserError, match="needs a trunk whose layers are all the same one"):
        teach(toy, tmp_path / "no", file, tune=replace(QUICK, passes=1), **columns)


def test_layer_decay_lowers_the_rate_layer_by_layer(toy):
    network = load(toy).network
    names = ("heads.classify.out.weight", "encoder.pooler.weight", "encoder.trunk.ffn.1.up.weight",
             "encoder.trunk.attention.0.qkv.weight", "encoder.embeddings.words.weight")  # fmt: skip
    assert [layer_scale(network, 0.5, name) for name in names] == [1.0, 1.0, 0.5, 0.25, 0.125]


def test_switches_change_what_is_learned(toy, tmp_path):
    rows = [row for row in classes(120) if row["stars"] == "good" or row["review"].startswith("the film")]
    file = write_rows(tmp_path / "a.csv", rows)
    columns = {"texts": ("review",), "label": ("stars",)}
    short = replace(QUICK, steps=4, dropout=0.0)

    def learned(name, tune=short, **task):
        teach(toy, tmp_path / name, file, tune=tune, **columns, **task)
        return load_file(tmp_path / name / "model" / "model.safetensors")

    plain = learned("plain")
    changes = {"layer_decay": 0.5, "schedule": "constant", "warmup": 3.0, "dropout": 0.3, "head_dropout": 0.5,
               "rate": 1e-3, "batch": 4, "seed": 1, "freeze": 1, "precision": "bf16"}  # fmt: skip
    for name, value in changes.items():
        other = learned(name, replace(short, **{name: value}))
        assert any(not torch.equal(plain[key], other[key]) for key in plain), name
    weighted = learned("weights", class_weights="balanced")
    assert any(not torch.equal(plain[key], weighted[key]) for key in plain)


def test_class_weights_let_rare_classes_count(toy, tmp_path):
    rows = [row for row in classes(400) if row["stars"] == "good"][:90] + [
        row for row in classes(400) if row["stars"] == "bad"
    ][:10]
    file = write_rows(tmp_path / "a.csv", rows)
    recipe = TuneRecipe(
        model=str(toy),
        task=TaskConfig(train=str(file), texts=("review",), label=("stars",), class_weights="balanced"),
    )
    from litebert.train.lesson import class_weights

    lesson = read_lesson(recipe, load(toy))
    weights = class_weights(lesson.taught.task, lesson.train, recipe.task, ALONE.device)
    counts = np.bincount([unit.target for unit in lesson.train])
    assert np.allclose(weights.numpy() * counts, len(lesson.train) / 2)
    with pytest.raises(UserError, match="class_weights are for classes"):
        class_weights(replace(lesson.taught.task, kind="regress"), lesson.train, recipe.task, ALONE.device)


def test_long_texts_are_cut_and_counted_or_read_in_windows_whose_logits_are_pooled(toy, tmp_path):
    rows = [{"text": " ".join(["the"] * 60 + [word]), "label": word} for word in ("fine", "poor") * 40]
    file = write_rows(tmp_path / "a.csv", rows)
    notes = []
    cut = teach(toy, tmp_path / "cut", file, say=notes.append, reading=Reading(length=32))
    assert any("72 of 72 texts are longer than 32 pieces and were cut" in note.get("text", "") for note in notes)
    assert cut["scores"][0]["value"] < 0.8  # what tells them apart was cut off
    whole = teach(toy, tmp_path / "whole", file, reading=Reading(length=32, long="windows", stride=16))
    assert whole["scores"][0]["value"] == 1.0
    model = load(tmp_path / "whole")
    (unit,) = units(
        model.tokenizer, model.taught.task, list(read_own(file, model.taught.task))[:1], model.taught.reading
    )
    assert [len(ids) for ids in unit.ids] == [32, 32, 31]
    assert unit.lost == 0


def test_every_finetuning_recipe_is_read_and_says_what_the_papers_say():
    table = {}
    for name in recipe_names():
        if name.startswith("finetune/"):
            made = parse(TuneRecipe, {**read_recipe(name), "model": "x"})
            table[name.partition("/")[2]] = made.tune.rate, made.tune.batch, made.tune.steps, made.tune.warmup
    assert len(table) == 23
    assert table["albert-rte"] == (3e-5, 32, 800, 200)
    assert table["albert-squad2"] == (3e-5, 48, 8144, 814)
    assert table["roberta-mnli"] == (1e-5, 32, 123873, 7432)


def test_a_setting_is_changed_from_the_command_line():
    table = changed({**read_recipe("albert-rte"), "model": "x"}, ["tune.rate=1e-3", "reading.length=64"])
    made = parse(TuneRecipe, table)
    assert (made.tune.rate, made.reading.length, made.tune.steps) == (1e-3, 64, 800)


class TestBadInput:
    """Each says what and where, and leaves nothing behind."""

    @pytest.fixture
    def fails(self, toy, tmp_path):
        def run(rows, message, name="a.csv", dev=None, text=None, **task):
            file = tmp_path / name
            file.write_text(rows) if isinstance(rows, str) else write_rows(file, rows)
            if dev is not None:
                task["dev"] = str(write_rows(tmp_path / f"dev-{name}", dev))
            with pytest.raises(UserError, match=message) as problem:
                teach(toy, tmp_path / "run", file, tune=replace(QUICK, steps=2), **task)
            assert "\n" not in str(problem.value)
            assert not (tmp_path / "run").exists()

        return run

    def test_a_missing_column(self, fails):
        fails(
            classes(20),
            r"a\.csv, row 2: no column 'reviews'; did you mean 'review'\?",
            texts=("reviews",),
            label=("stars",),
        )

    def test_an_unknown_label_in_dev(self, fails):
        dev = [*classes(5), {"review": "the film .", "stars": "middling"}]
        fails(classes(20), r"dev-a\.csv, row 7: label 'middling' is not in the training file", dev=dev,
              texts=("review",), label=("stars",))  # fmt: skip

    def test_an_unknown_tag_in_dev(self, fails):
        dev = [{"tokens": ["ann"], "tags": ["B-ORG"]}]
        fails(tags(20), r"dev-a\.jsonl, row 1: label 'B-ORG' is not in the training file", name="a.jsonl", dev=dev)

    def test_an_empty_text(self, fails):
        rows = [*classes(9), {"review": " ", "stars": "good"}]
        fails(rows, r"a\.csv, row 11: the text in 'review' is empty", texts=("review",), label=("stars",))

    def test_a_row_with_too_few_fields(self, fails):
        fails("text,label\nfine,1\npoor\n", r"a\.csv, row 3: 1 fields where there should be 2")

    def test_an_answer_that_is_not_in_its_passage(self, fails):
        rows = [*questions(4), {"question": "who ?", "context": "the book", "answers": [{"text": "ann"}]}]
        fails(rows, r"a\.jsonl, row 5: the answer 'ann' does not stand in the passage", name="a.jsonl")

    def test_a_choice_that_is_none_of_the_options(self, fails):
        rows = [*choices(4), {"text": "it was .", "options": ["a", "b"], "label": 7}]
        fails(rows, r"a\.jsonl, row 5: 7 is none of the 2 options", name="a.jsonl")

    def test_too_few_examples_to_hold_some_out(self, fails):
        rows = [{"review": "the film", "stars": label} for label in ("good", "bad")]
        fails(rows, r"2 examples are too few to hold some out", texts=("review",), label=("stars",))

    def test_a_length_that_the_model_does_not_have(self, toy, tmp_path):
        file = write_rows(tmp_path / "a.csv", classes(20))
        with pytest.raises(UserError, match=r"reading\.length = 512 does not fit the model's 64 positions"):
            teach(toy, tmp_path / "run", file, reading=Reading(length=512), texts=("review",), label=("stars",))
        assert not (tmp_path / "run").exists()

    def test_an_empty_dev_file(self, toy, tmp_path):
        file = write_rows(tmp_path / "a.csv", classes(40))
        (tmp_path / "b.csv").write_text("review,stars\n")
        with pytest.raises(UserError, match="there is nothing to score on: the dev file is empty"):
            teach(toy, tmp_path / "run", file, dev=str(tmp_path / "b.csv"), texts=("review",), label=("stars",))
        assert not (tmp_path / "run").exists()

    def test_a_single_class(self, fails):
        rows = [{"text": "the film", "label": "a"}] * 20
        fails(rows, r"a\.csv: every row has the label 'a'; there is nothing to tell apart")

    def test_a_dev_set_without_a_class_is_said(self, toy, tmp_path):
        file = write_rows(tmp_path / "a.csv", classes(40))
        dev = write_rows(tmp_path / "b.csv", [row for row in classes(40) if row["stars"] == "good"])
        notes = []
        teach(toy, tmp_path / "run", file, tune=replace(QUICK, steps=2), say=notes.append, dev=str(dev),
              texts=("review",), label=("stars",))  # fmt: skip
        assert any("nothing to score of 'bad'" in note.get("text", "") for note in notes)

    def test_a_task_without_its_folder_and_an_unknown_task(self, toy, tmp_path):
        for task, message in (
            (TaskConfig(name="rte"), "say where the files of rte are: --data FOLDER"),
            (TaskConfig(name="ret", data="x"), r"unknown task 'ret'; did you mean 'rte'\?"),
            (TaskConfig(), "say what to learn"),
            (TaskConfig(name="rte", data="x", train="y"), "not both"),
            (TaskConfig(name="rte", data="x", dev="y"), "not both"),
            (TaskConfig(name="rte", data="x", kind="regress"), "not both"),
            (TaskConfig(train="y", data="x"), "--data x is for a benchmark"),
        ):
            with pytest.raises(UserError, match=message):
                finetune(TuneRecipe(model=str(toy), task=task), tmp_path / "run", False, ALONE, quiet)


def test_without_a_dev_file_a_stratified_part_is_held_out_the_same_each_time(toy, tmp_path):
    rows = [{"text": f"the film {'up ' * (n % 7)}", "label": "rare" if n % 10 == 0 else "common"} for n in range(200)]
    file = write_rows(tmp_path / "a.csv", rows)
    recipe = TuneRecipe(model=str(toy), task=TaskConfig(train=str(file), held_out=0.2))
    one, other = (read_lesson(recipe, load(toy)) for _ in range(2))
    assert [each.key for each in one.dev] == [each.key for each in other.dev]
    assert sorted(each.target for each in one.dev).count("rare") == 4
    assert len(one.dev) == 40
    assert len(one.train) == 160


def test_the_kinds_of_a_models_answers_travel_without_its_training_file(toy, tmp_path):
    file = write_rows(tmp_path / "a.jsonl", several(60))
    teach(toy, tmp_path / "run", file, tune=replace(QUICK, steps=4))
    file.unlink()
    model = load(tmp_path / "run")
    assert model.labels == ("blue", "green", "red")
    assert model.taught.task.kind == "several"


def test_a_csv_of_predictions_is_a_csv(toy, tmp_path):
    file = write_rows(tmp_path / "a.csv", classes(60))
    teach(toy, tmp_path / "run", file, tune=replace(QUICK, steps=30), texts=("review",), label=("stars",))
    said = CliRunner().invoke(app, ["predict", str(tmp_path / "run"), str(file), "--to", str(tmp_path / "p.csv")])
    assert said.exit_code == 0, said.output
    with open(tmp_path / "p.csv", newline="") as written:
        rows = list(csv.DictReader(written))
    assert len(rows) == 60
    assert {row["prediction"] for row in rows} <= {"good", "bad"}
    assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)


@pytest.mark.parametrize(("name", "folder", "count"), [("rte", "glue", 277), ("stsb", "glue/STS-B", 1500)])
def test_the_real_files_of_a_benchmark_train_and_are_scored(toy, tmp_path, data, name, folder, count):
    task = TaskConfig(name=name, data=str(data / folder))
    recipe = TuneRecipe(model=str(toy), task=task, tune=replace(QUICK, steps=1), reading=Reading(length=64))
    found = finetune(recipe, tmp_path / name, False, ALONE, quiet)
    assert found["scores"][0]["count"] == count
