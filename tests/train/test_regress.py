"""Numbers of any size: taught as deviations from their mean, answered in the units of the file, everywhere."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from litebert.config import GuideConfig, HeadConfig, Reading, UserError
from litebert.infer.batch import state_inputs, to_batch, unit_shares
from litebert.infer.model import Model, load
from litebert.infer.predict import asked, listen
from litebert.model.weights import build
from litebert.recipe import TaskConfig, TuneConfig, TuneRecipe
from litebert.tasks.example import Example, Task
from litebert.tasks.features import units
from litebert.tasks.read import benchmark
from litebert.tasks.taught import Taught
from litebert.train.finetune import finetune
from litebert.train.lesson import counted_in, digest_of, guide_of, pupil, read_lesson
from litebert.train.seeds import finetune_seeds
from tests.toys import ALONE, classes, numbers, toy_model, write_rows

QUICK = TuneConfig(epochs=8, batch=8, rate=3e-3, log_every=20, head_dropout=0.0)
BRIEF = replace(QUICK, epochs=1, evaluate_every=4)
TEXTS = ["up up up up", "up the up the", "the the the the"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return toy_model(tmp_path_factory.mktemp("toy"), "albert", layers=4)


def quiet(_):
    pass


def counts(path, count, scale=1.0, offset=0.0, seed=0):
    """How often a text says 'up', in other units."""
    return write_rows(path, [row | {"label": row["label"] * scale + offset} for row in numbers(count, seed)])


def recipe_of(toy, file, tune=QUICK, **more):
    return TuneRecipe(model=str(toy), task=TaskConfig(train=str(file), kind="regress"), tune=tune, **more)


def told(model, texts=TEXTS, **how):
    return np.array([each.value for each in model.classify(texts, **how)])


def examples(values):
    return [Example(key=str(n), texts=("up",), target=value) for n, value in enumerate(values)]


def speaker(toy, seed=0, mean=0.0, scale=1.0):
    """A model with a fresh head, and what it was taught on."""
    base = load(toy)
    network = build(base.config, (HeadConfig(kind="regress"),), seed)
    task = Task(kind="regress", texts=("text",), label=("label",), mean=mean, scale=scale)
    return Model(network=network, tokenizer=base.tokenizer, taught=Taught(task, Reading(length=32, question_length=16)))


@pytest.mark.parametrize(("scale", "offset"), [(70_000, 30_000), (8, 1980), (1e-4, 0), (3, -1.7e9)])
def test_numbers_of_any_size_are_learned_and_answered_in_their_own_units(toy, tmp_path, scale, offset):
    file, lines = counts(tmp_path / "a.tsv", 240, scale, offset), []
    final = finetune(recipe_of(toy, file), tmp_path / "run", False, ALONE, lines.append)
    assert [each["name"] for each in final["scores"]] == ["r2", "pearson", "spearman"]
    assert final["scores"][0]["value"] > 0.9
    model = load(tmp_path / "run")
    assert told(model) == pytest.approx(np.array([4.5, 2.5, 0.5]) * scale + offset, abs=0.8 * scale)
    task = model.taught.task
    assert (task.mean, task.scale) == pytest.approx((2.5 * scale + offset, 1.4 * scale), abs=0.2 * scale)
    assert all(line["loss"] < 3 for line in lines if "loss" in line)
    model.save(tmp_path / "copy")
    assert np.array_equal(told(load(tmp_path / "copy")), told(model))


def test_what_is_learned_does_not_depend_on_the_unit(toy, tmp_path):
    """A power of two, so that nothing is rounded: the same weights to the last bit."""
    found = {}
    for name, scale in (("small", 1.0), ("large", 65536.0)):
        file = counts(tmp_path / f"{name}.tsv", 60, scale)
        finetune(recipe_of(toy, file, BRIEF), tmp_path / name, False, ALONE, quiet)
        weights = load_file(tmp_path / name / "model" / "model.safetensors")
        found[name] = weights, told(load(tmp_path / name)) / scale
    assert all(torch.equal(weight, found["large"][0][name]) for name, weight in found["small"][0].items())
    assert np.array_equal(found["small"][1], found["large"][1])


def test_a_run_that_was_stopped_goes_on_bit_for_bit_and_its_checkpoint_answers_in_units(
    toy, tmp_path, killed_at_second_look
):
    file = counts(tmp_path / "a.tsv", 80, 1000, 5000)
    recipe = recipe_of(toy, file, BRIEF)
    finetune(recipe, tmp_path / "whole", False, ALONE, quiet)
    killed_at_second_look(lambda: finetune(recipe, tmp_path / "cut", False, ALONE, quiet))
    checkpoint = load(tmp_path / "cut")
    assert 4000 < told(checkpoint).mean() < 10_000
    finetune(None, tmp_path / "cut", True, ALONE, quiet)
    one, other = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert load(tmp_path / "cut").taught == load(tmp_path / "whole").taught == checkpoint.taught


def test_a_run_whose_numbers_changed_is_not_gone_on_with_and_says_so(toy, tmp_path, killed_at_second_look):
    recipe = recipe_of(toy, counts(tmp_path / "a.tsv", 80), BRIEF)
    killed_at_second_look(lambda: finetune(recipe, tmp_path / "run", False, ALONE, quiet))
    counts(tmp_path / "a.tsv", 80, scale=2)
    with pytest.raises(UserError, match=r"the examples or numbers are not those that .* was begun with; put the old"):
        finetune(None, tmp_path / "run", True, ALONE, quiet)


def test_a_run_that_was_begun_on_the_numbers_as_they_are_is_not_gone_on_with():
    rows, plain = examples([1.5, 2.5]), Task(kind="regress")
    assert digest_of(counted_in(plain, rows)[0], rows) != digest_of(plain, rows)


def test_the_lesson_says_what_it_counts_in(toy, tmp_path):
    file = counts(tmp_path / "a.tsv", 60, 1e6)
    lesson = read_lesson(recipe_of(toy, file), load(toy))
    mean, scale = lesson.taught.task.mean, lesson.taught.task.scale
    note = f"numbers from 500,000 to 4,500,000: taught with mean {mean:,.0f} and deviation {scale:,.0f}"
    assert note in lesson.notes
    targets = [unit.target for unit in lesson.train]
    assert (np.mean(targets), np.std(targets)) == pytest.approx((0, 1))
    assert lesson.dev[0].target >= 500_000


def test_seeds_count_alike(toy, tmp_path):
    file = counts(tmp_path / "a.tsv", 60, 100)
    finetune_seeds(recipe_of(toy, file, replace(BRIEF, steps=2)), tmp_path / "run", 2, False, ALONE, quiet)
    one, other = (load(tmp_path / "run" / f"seed-{seed}").taught.task for seed in (0, 1))
    assert one == other == load(tmp_path / "run").taught.task
    assert one.scale > 100


def test_numbers_that_are_all_the_same_are_answered(toy, tmp_path):
    rows = [row | {"label": 2.5e6} for row in numbers(40)]
    lines = []
    recipe = recipe_of(toy, write_rows(tmp_path / "a.tsv", rows), replace(QUICK, epochs=2))
    final = finetune(recipe, tmp_path / "run", False, ALONE, lines.append)
    assert [each["value"] for each in final["scores"]] == [0, 0, 0]
    assert any("every number to learn from is 2,500,000" in line.get("text", "") for line in lines)
    assert told(load(tmp_path / "run")) == pytest.approx([2.5e6] * 3, abs=5)


def test_numbers_that_no_deviation_spans_are_one_line():
    with pytest.raises(UserError, match=r"numbers from -1e\+300 to 1e\+300 are too far apart .* logarithms"):
        counted_in(Task(kind="regress"), examples([1e300, -1e300]))
    tiny, _ = counted_in(Task(kind="regress"), examples([1e-200, 2e-200]))
    assert tiny.scale == pytest.approx(1e-200)


def test_a_benchmark_is_taught_as_the_papers_have_it(toy, tmp_path):
    rows = [{"sentence1": row["text"], "sentence2": "up", "score": row["label"]} for row in numbers(30)]
    for split in ("train", "dev"):
        write_rows(tmp_path / f"{split}.tsv", rows)
    recipe = TuneRecipe(model=str(toy), task=TaskConfig(name="stsb", data=str(tmp_path)), tune=QUICK)
    lesson = read_lesson(recipe, load(toy))
    assert lesson.taught.task == benchmark("stsb")
    assert lesson.taught.task.metrics == ("pearson", "spearman")
    assert [unit.target for unit in lesson.train] == [row["score"] for row in rows]
    assert not any("deviation" in note for note in lesson.notes)


def test_only_numbers_that_were_counted_write_their_mean_and_folders_without_one_answer_as_before(toy, tmp_path):
    plain = speaker(toy)
    plain.save(tmp_path / "plain")
    assert not {"mean", "scale"} & set(json.loads((tmp_path / "plain" / "task.json").read_text())["task"])
    with torch.no_grad():
        batch = read(plain, plain.taught.task)
        said = plain.network(**state_inputs(plain.network, batch))["regress"][: len(TEXTS), 0]
    assert told(load(tmp_path / "plain")) == pytest.approx(said[batch.unit.argsort()].numpy(), abs=1e-6)
    counted = speaker(toy, mean=1e5, scale=2e4)
    counted.save(tmp_path / "counted")
    assert told(load(tmp_path / "counted")) == pytest.approx(1e5 + 2e4 * told(plain))
    file = write_rows(tmp_path / "a.csv", classes(20))
    recipe = TuneRecipe(model=str(toy), task=TaskConfig(train=str(file), texts=("review",), label=("stars",)))
    finetune(replace(recipe, tune=replace(BRIEF, steps=1)), tmp_path / "run", False, ALONE, quiet)
    assert not {"mean", "scale"} & set(json.loads((tmp_path / "run" / "model" / "task.json").read_text())["task"])


def test_a_scale_that_is_none_is_named(toy, tmp_path):
    speaker(toy, mean=1.0, scale=2.0).save(tmp_path / "a")
    file = tmp_path / "a" / "task.json"
    file.write_text(file.read_text().replace('"scale": 2.0', '"scale": 0.0'))
    with pytest.raises(UserError, match=r"task\.json: .*scale = 0 must be above 0"):
        load(tmp_path / "a")


def read(model, task):
    rows = [Example(key=str(n), texts=(text,), target=1.0) for n, text in enumerate(TEXTS)]
    return to_batch(list(units(model.tokenizer, task, rows, model.taught.reading)), task, torch.device("cpu"))


@torch.no_grad()
def answers(network, model, task):
    """What a network says of the texts, if its head counts as the task does."""
    batch = read(model, task)
    states = network.eval().encoder(**state_inputs(network, batch))
    return unit_shares(network, states, batch, task)[:, 0].numpy()


@pytest.mark.parametrize("before", [(0.0, 1.0), (900.0, 50.0)])
def test_a_head_that_is_kept_goes_on_from_the_same_answers(toy, before):
    model = speaker(toy, 3, *before)
    task = replace(model.taught.task, mean=5000.0, scale=700.0)
    network, notes = pupil(model, task, QUICK)
    assert any("is kept" in note for note in notes)
    assert answers(network, model, task) == pytest.approx(told(model), abs=1e-5 * task.scale)
    assert not torch.equal(network.heads["regress"].out.weight, model.heads["regress"].out.weight)
    again, _ = pupil(model, model.taught.task, QUICK)
    assert torch.equal(again.heads["regress"].out.weight, model.heads["regress"].out.weight)


def test_a_teacher_that_counts_otherwise_is_understood(toy, tmp_path):
    teacher = speaker(toy, 4, 2000.0, 300.0)
    teacher.save(tmp_path / "teacher")
    file = counts(tmp_path / "a.tsv", 40, 1000)
    recipe = recipe_of(toy, file, distill=GuideConfig(teacher=str(tmp_path / "teacher")))
    lesson = read_lesson(recipe, load(toy))
    network = guide_of(recipe, lesson, torch.float32, torch.device("cpu"))
    assert lesson.taught.task.mean > 2000
    assert answers(network, teacher, lesson.taught.task) == pytest.approx(told(teacher), rel=1e-4)


def test_models_that_count_otherwise_are_averaged_in_units(toy):
    models = [speaker(toy, seed, mean, scale) for seed, mean, scale in ((1, 0.0, 1.0), (2, 5e4, 1e4), (3, -3e4, 10.0))]
    rows = [Example(key=str(n), texts=(text,)) for n, text in enumerate(TEXTS)]
    said = [float(each[0]) for _, each, _ in listen([asked(model) for model in models], rows)]
    assert said == pytest.approx(np.mean([told(model) for model in models], axis=0))


def test_every_engine_and_depth_answers_in_units(toy, tmp_path):
    model = speaker(toy, 5, 1e5, 2e4)
    model.save(tmp_path / "a")
    plain = speaker(toy, 5)
    in_units = partial(pytest.approx, rel=1e-6)
    for passes in (1, 2, 4):
        assert told(model, passes=passes) == in_units(1e5 + 2e4 * told(plain, passes=passes))
    assert told(model, settle=1e-9) == in_units(told(model))
    bound = 1.5 * 2e4 * np.abs(told(plain, passes=2) - told(plain, passes=1)).max()  # in units, as it is said
    assert told(model, settle=bound) == in_units(told(model, passes=2))
    if torch.backends.mkldnn.is_available():
        for precision, close in (("fp32", 100), ("int8", 1e4)):
            assert told(load(tmp_path / "a", precision=precision)) == pytest.approx(told(model), abs=close)
