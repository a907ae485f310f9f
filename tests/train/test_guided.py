"""A teacher of the same task, and a dial while fine-tuning: every kind of task, and what cannot be done in one line."""

import math
import re
from dataclasses import replace
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from litebert.cli import app
from litebert.config import DialConfig, GuideConfig, UserError
from litebert.infer.batch import to_batch
from litebert.infer.model import load
from litebert.model import layers
from litebert.recipe import TaskConfig, TuneConfig, TuneRecipe
from litebert.tasks.own import infer_task
from litebert.text.tokenizer import Tokenizer
from litebert.train.finetune import finetune
from litebert.train.lesson import pupil, read_lesson
from litebert.train.tutor import Part, Tutor, divergence
from tests.toys import ALONE, KINDS, classes, numbers, questions, toy_model, write_rows
from tests.train.test_finetune import NothingWaits

QUICK = TuneConfig(epochs=4, batch=8, rate=2e-3, log_every=10, head_dropout=0.0)
END = replace(QUICK, epochs=10, rate=3e-3, evaluate_every=10**6)  # only the end is scored and kept
KIND = {**KINDS, "unanswerable": (partial(questions, unanswerable=0.4), ".jsonl", (), 0.0)}


@pytest.fixture(scope="module")
def albert(tmp_path_factory):
    return toy_model(tmp_path_factory.mktemp("albert"), "albert", layers=4)


def quiet(_):
    pass


def lesson_of(folder, toy, kind):
    rows, ending, options, _ = KIND[kind]
    file = write_rows(folder / f"{kind}{ending}", rows(60, 3))
    task = infer_task(file, options[1:2], options[3:4])
    recipe = TuneRecipe(model=str(toy), task=TaskConfig(train=str(file), texts=task.texts, label=task.label))
    return recipe, read_lesson(recipe, load(toy))


def network_of(toy, lesson, seed):
    return pupil(load(toy), lesson.taught.task, replace(QUICK, dropout=0.0, seed=seed))[0].double()


@pytest.mark.parametrize("kind", KIND)
def test_who_says_the_same_as_the_teacher_has_nothing_to_learn_from_it(albert, tmp_path, kind):
    """And who does not, comes nearer to it."""
    _, lesson = lesson_of(tmp_path, albert, kind)
    task, batch = lesson.taught.task, to_batch(lesson.train[:8], lesson.taught.task, torch.device("cpu"))
    teacher = network_of(albert, lesson, 5).eval()
    guide = GuideConfig(teacher="x", soft=1.0, hard=0.0)
    same = Tutor(teacher, task, None, network_of(albert, lesson, 5).eval(), guide)
    same(batch).backward()
    assert all(each.grad is None or each.grad.abs().max() < 1e-9 for each in same.parameters())
    assert abs(same(batch).item()) < 1e-9
    other = Tutor(network_of(albert, lesson, 6), task, None, teacher, guide)
    assert not any("teacher" in name for name in other.state_dict())
    optimizer = torch.optim.SGD(other.parameters(), lr=1e-3)
    losses = []
    for _ in range(12):
        loss = other(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert 0 < losses[-1] < losses[0]


@pytest.mark.parametrize("kind", KIND)
def test_the_loss_is_the_sum_that_the_weights_say(albert, tmp_path, kind):
    _, lesson = lesson_of(tmp_path, albert, kind)
    task, batch = lesson.taught.task, to_batch(lesson.train[:8], lesson.taught.task, torch.device("cpu"))
    network, teacher = network_of(albert, lesson, 1), network_of(albert, lesson, 2).eval()

    def value(depth=0, taught=None, **settings):
        guide = GuideConfig(**{k: v for k, v in settings.items() if k in ("soft", "hard", "temperature")})
        dial = DialConfig(depths=(2,), weight=settings.get("weight", 1.0), soft=settings.get("follow", 1.0))
        return Tutor(network, task, None, taught, guide, dial)(batch, depth).item()

    plain, soft = value(), value(taught=teacher, hard=0.0, soft=1.0)
    assert value(taught=teacher, hard=0.3, soft=0.2) == pytest.approx(0.3 * plain + 0.2 * soft)
    if task.kind != "regress":
        assert value(taught=teacher, hard=0.0, soft=1.0, temperature=5.0) != pytest.approx(soft)
    shallow = value(2, weight=1.0, follow=0.0) - plain
    followed = value(2, weight=0.0, follow=1.0) - plain
    assert value(2, weight=0.5, follow=2.0) == pytest.approx(plain + 0.5 * shallow + 2.0 * followed)
    # the dial is not the teacher's to weigh
    both = value(2, taught=teacher, hard=0.3, soft=0.2, weight=0.5, follow=2.0)
    assert both == pytest.approx(0.3 * plain + 0.2 * soft + 0.5 * shallow + 2.0 * followed)
    assert math.isfinite(value(taught=teacher, hard=0.0, soft=1.0, temperature=0.3))
    cut = replace_layers(network, 2)
    assert shallow == pytest.approx(Tutor(cut, task)(batch).item())


def test_a_class_weighs_the_same_among_labels_and_answers(albert, tmp_path):
    _, lesson = lesson_of(tmp_path, albert, "classify")
    task, network, teacher = lesson.taught.task, network_of(albert, lesson, 1), network_of(albert, lesson, 2).eval()
    guide, found = GuideConfig(hard=0.0, soft=1.0), []
    for weights in (None, torch.tensor([5.0, 0.5])):
        tutor = Tutor(network, task, weights, teacher, guide)
        found.append([tutor(to_batch([unit], task, torch.device("cpu"))).item() for unit in lesson.train[:8]])
    ratios = [weighted / plain for plain, weighted in zip(*found, strict=True)]
    assert ratios == pytest.approx([(5.0, 0.5)[unit.target] for unit in lesson.train[:8]])


@pytest.mark.parametrize("kind", KIND)
def test_recorded_steps_with_a_teacher_and_a_dial_wait_for_nothing(albert, tmp_path, monkeypatch, kind):
    _, lesson = lesson_of(tmp_path, albert, kind)
    task, network, teacher = lesson.taught.task, network_of(albert, lesson, 1), network_of(albert, lesson, 2).eval()
    tutor = Tutor(network, task, None, teacher, GuideConfig(), DialConfig(depths=(2,)))
    units = lesson.train[:8]
    wanted = tutor(to_batch(units, task, torch.device("cpu")), 2).item()
    monkeypatch.setattr(layers, "ragged_attention", layers.widened_attention)  # as a GPU does it with dropout
    batch = to_batch(units, task, torch.device("cpu"), few=64)
    with NothingWaits():
        loss = tutor(batch, 2)
        loss.backward()
    assert loss.item() == pytest.approx(wanted)
    assert Part(batch, loss, 1).shape != Part(batch, loss, 2).shape


def replace_layers(network, layers):
    """The same weights, run only so often."""
    config = replace(network.config, layers=layers)
    made = type(network)(config, network.head_configs).double()
    made.load_state_dict(network.state_dict())
    return made


def test_divergence_is_kl_at_a_temperature():
    generator = torch.Generator().manual_seed(0)
    mine, theirs = (torch.randn(4, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    p, q = (theirs / 2).softmax(-1), (mine / 2).softmax(-1)
    torch.testing.assert_close(divergence(mine, theirs, 2.0), 4 * (p * (p / q).log()).sum(-1))


def teach(toy, folder, file, columns=("review", "stars"), resume=False, say=quiet, **more):
    task = TaskConfig(train=str(file), texts=columns[:1], label=columns[1:])
    tune = more.pop("tune", QUICK)
    return finetune(TuneRecipe(model=str(toy), task=task, tune=tune, **more), folder, resume, ALONE, say)


def test_a_run_follows_its_teacher_and_resumes(albert, tmp_path, killed_at_second_look):
    file = write_rows(tmp_path / "a.csv", classes(120))
    teach(albert, tmp_path / "teacher", file, tune=END)
    guide = GuideConfig(teacher=str(tmp_path / "teacher"))
    teach(albert, tmp_path / "student", file, distill=guide, dial=DialConfig(depths=(1, 2)))
    teach(albert, tmp_path / "plain", file)
    one, other = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("student", "plain"))
    assert any(not torch.equal(one[name], other[name]) for name in one)
    words = ["finetune", str(albert), "--train", str(file), "--text", "review", "--label", "stars", "--device", "cpu"]
    names = ("epochs", "batch", "rate", "log_every", "head_dropout")
    changes = [f"tune.{name}={getattr(QUICK, name)}" for name in names]
    words += [word for each in (*changes, "dial.depths=[1,2]") for word in ("--set", each)]
    told = CliRunner().invoke(app, [*words, "--teacher", guide.teacher, "--to", str(tmp_path / "said")])
    assert told.exit_code == 0, told.output
    said = load_file(tmp_path / "said" / "model" / "model.safetensors")
    assert all(torch.equal(one[name], said[name]) for name in one)
    killed_at_second_look(lambda: teach(albert, tmp_path / "cut", file, distill=guide, dial=DialConfig(depths=(1, 2))))
    finetune(None, tmp_path / "cut", True, ALONE, quiet)
    again = load_file(tmp_path / "cut" / "model" / "model.safetensors")
    assert all(torch.equal(one[name], again[name]) for name in one)


def test_a_dialled_classifier_answers_after_one_pass(albert, tmp_path):
    """At depths it was not taught it does not."""
    file = write_rows(tmp_path / "a.csv", classes(200))
    losses = {}
    for name, depths in (("plain", ()), ("dialled", (1, 2))):
        teach(albert, tmp_path / name, file, dial=DialConfig(depths=depths), tune=END)
        model = load(tmp_path / name)
        units = read_lesson(
            TuneRecipe(model=str(albert), task=TaskConfig(train=str(file), texts=("review",), label=("stars",))), model
        ).train
        batch = to_batch(units, model.taught.task, torch.device("cpu"))
        losses[name] = Tutor(replace_layers(model.network.double(), 1), model.taught.task)(batch).item() / len(units)
    assert losses["dialled"] < losses["plain"] / 2


def test_who_cannot_guide_is_told_in_one_line(albert, tmp_path):
    file = write_rows(tmp_path / "a.csv", classes(60))
    other = write_rows(tmp_path / "b.tsv", numbers(60))
    teach(albert, tmp_path / "number", other, columns=())
    bert = toy_model(tmp_path / "bert")
    teach(albert, tmp_path / "taught", file)
    model = load(tmp_path / "taught")
    (tmp_path / "vocab.txt").write_text((bert / "vocab.txt").read_text().replace("film", "movie"))
    replace(model, tokenizer=Tokenizer.load(tmp_path / "vocab.txt")).save(tmp_path / "reader")
    for guide, dial, sentence in (
        ({"teacher": str(albert)}, {}, "was taught no task"),
        ({"teacher": str(tmp_path / "number")}, {}, "was taught another task, regress"),
        ({"teacher": str(tmp_path / "reader")}, {}, "reads other pieces than its student"),
        ({}, {"depths": (4,)}, "dial.depths = [4] must be below the 4 passes"),
    ):
        with pytest.raises(UserError, match=re.escape(sentence)):
            teach(albert, tmp_path / "run", file, distill=GuideConfig(**guide), dial=DialConfig(**dial))
    with pytest.raises(UserError, match="layers are all the same one"):
        teach(bert, tmp_path / "run", file, dial=DialConfig(depths=(1,)))
    for wrong in ({"soft": -1.0}, {"soft": 0.0, "hard": 0.0}, {"temperature": 0.0}):
        with pytest.raises(UserError):
            GuideConfig(**wrong)
