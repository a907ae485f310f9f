"""ONNX files: every head, family and plan says what PyTorch says, each weight once; the folder stands alone."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from litebert.cli import app
from litebert.config import HeadConfig, Reading, UserError, preset
from litebert.export.engine import run_by_onnx
from litebert.export.folder import compare, export_onnx
from litebert.export.onnx import write_network
from litebert.infer.loop import open_session
from litebert.infer.model import Model, load
from litebert.infer.predict import asked, listen
from litebert.model.weights import build
from litebert.recipe import TaskConfig, TuneConfig, TuneRecipe
from litebert.report.evaluation import read_examples
from litebert.tasks.example import Task
from litebert.tasks.read import TASKS
from litebert.tasks.taught import Taught
from litebert.train.finetune import finetune
from tests.conftest import FAMILIES
from tests.toys import ALONE, KINDS, classes, questions, toy_model, write_rows

onnx = pytest.importorskip("onnx", reason="pip install 'litebert[onnx]'")
pytest.importorskip("onnxruntime", reason="pip install 'litebert[onnx]'")

LABELS = ("a", "b", "c")
HEADS = [
    HeadConfig(kind="mlm"),
    HeadConfig(kind="classify", labels=LABELS),
    HeadConfig(kind="regress"),
    HeadConfig(kind="tag", labels=LABELS),
    HeadConfig(kind="span"),
    HeadConfig(kind="span-beam"),
]
POOLED = [HeadConfig(kind="pair"), HeadConfig(kind="choice")]


def heads_of(config):
    return [*HEADS, *(POOLED if config.pooler else [])]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_head_of_every_family_says_what_pytorch_says(family, small):
    config = small(family)
    network = build(config, heads_of(config), 0).eval()
    session = open_session(write_network(network, False, False), 1)
    assert {"mlm", "classify", "regress", "tag", "span", "start", "end_at", "no_answer"} <= {
        each.name for each in session.get_outputs()
    }
    for seed, shape in enumerate([(1, 3), (4, 9), (2, 31), (5, 40)]):
        assert compare(network, session, shape, seed) < 1e-4


@pytest.mark.parametrize(
    "plan",
    [
        {"sharing": "none"},
        {"sharing": "attention"},
        {"sharing": "ffn"},
        {"sharing": "all", "groups": 2},
        {"sharing": "all", "inner_groups": 2},
        {"sharing": "none", "inner_groups": 2},
        {"sharing": "all", "causal": True},
        {"sharing": "all", "activation": "relu"},
        {"sharing": "all", "activation": "silu"},
        {"sharing": "all", "activation": "gelu"},
        {"sharing": "all", "token_types": 0},
    ],
    ids=str,
)
def test_every_plan_says_what_pytorch_says(plan, small):
    network = build(small("albert", **plan), [HeadConfig(kind="pair"), HeadConfig(kind="mlm")], 1).eval()
    session = open_session(write_network(network, False, False), 1)
    assert max(compare(network, session, shape, 7) for shape in ((2, 13), (3, 24))) < 1e-4


def test_the_beam_finds_the_places_that_pytorch_finds(small):
    network = build(small("bert"), [HeadConfig(kind="span-beam")], 3).eval()
    session = open_session(write_network(network, False, False), 1)
    ids = torch.randint(5, 99, (3, 20), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    allowed = torch.arange(20).expand_as(ids) % 3 != 1
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": 0 * ids, "allowed": allowed.long()}
    found = dict(
        zip(
            ["start_at", "end_at"],
            session.run(["start_at", "end_at"], {k: v.numpy() for k, v in given.items()}),
            strict=True,
        )
    )
    with torch.no_grad():
        beam = network.heads["span-beam"].beam(network.encoder(ids, mask, 0 * ids), allowed)
    assert (found["start_at"] == beam.start_at.numpy()).all()
    assert (found["end_at"] == beam.end_at.numpy()).all()


def test_passes_are_an_input_where_one_layer_is_all_there_is(small):
    network = build(small(layers=3), [HeadConfig(kind="pair")], 0).eval()
    session = open_session(write_network(network, True, False), 1)
    ids = np.arange(5, 17)[None]
    given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    said = []
    for passes in (1, 3, 5):
        ours = session.run(["pair"], given | {"passes": np.array(passes)})[0]
        with torch.no_grad():
            theirs = network(torch.from_numpy(ids), passes=passes)["pair"].numpy()
        assert np.allclose(ours, theirs, atol=1e-5)
        said.append(ours)
    assert np.abs(said[0] - said[1]).max() > 1e-3
    with pytest.raises(UserError, match="passes can be an input"):
        write_network(build(small("bert"), (), 0), True, False)


def test_a_shared_layer_is_stored_once_and_int8_is_a_quarter():
    """ALBERT-base, the bytes of the file beside those of the weights; nothing is stored turned as well."""
    network = build(preset("albert-base"), [HeadConfig(kind="mlm")], 0).eval()
    bare = sum(each.numel() * 4 for each in network.parameters())
    whole = write_network(network, True, False)
    assert len(whole) < 1.05 * bare
    small = write_network(network, True, True)
    assert len(small) < 0.30 * bare
    read = onnx.load_from_string(small)
    turned = [node.input[0] for node in read.graph.node if node.op_type == "Transpose"]
    assert turned == ["words.int8"]  # for the tied table alone
    session = open_session(small, 1)
    assert compare(network, session, (2, 16), 0) < 0.2


def test_int8_answers_stay_near(small):
    network = build(
        small("bert", hidden_size=64, embedding_size=64), [HeadConfig(kind="classify", labels=LABELS)], 0
    ).eval()
    exact, rough = (open_session(write_network(network, False, int8), 1) for int8 in (False, True))
    assert compare(network, exact, (4, 12), 0) < 1e-5 < compare(network, rough, (4, 12), 0) < 0.2


GOOD, RED = ("bad", "good"), ("red", "blue")
TAUGHT = {
    "classify": (Task(kind="classify", labels=GOOD, texts=("review",)), HeadConfig(kind="classify", labels=GOOD)),
    "several": (Task(kind="several", labels=RED), HeadConfig(kind="classify", labels=RED, several=True)),
    "regress": (Task(kind="regress", texts=("text",)), HeadConfig(kind="regress")),
    "answer": (replace(TASKS["squad"], metrics=("f1", "em")), HeadConfig(kind="span")),
    "choice": (Task(kind="choice"), HeadConfig(kind="choice")),
}  # fmt: skip


def taught(folder, kind):
    task, head = TAUGHT[kind]
    model = load(toy_model(folder))
    network = build(model.config, (head,), 0)
    return Model(
        network=network, tokenizer=model.tokenizer, taught=Taught(task, Reading(length=32, question_length=16))
    )


def ran(folder, *texts):
    """What the folder says by itself: nothing of litebert is imported."""
    code = "import runpy, sys; sys.modules['litebert'] = sys.modules['torch'] = None; runpy.run_path(sys.argv.pop(1), "
    code += "run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code, str(folder / "run.py"), *texts], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_folder_says_what_the_model_says_without_litebert(tmp_path):
    text, other = "the film was fine .", "eve wrote the book in london"
    for kind in TAUGHT:
        model = taught(tmp_path / f"{kind}-model", kind)
        export_onnx(model, tmp_path / kind)
        if kind in ("classify", "several"):
            assert ran(tmp_path / kind, text) == pytest.approx(model.classify([text])[0].probabilities, abs=1e-5)
            assert ran(tmp_path / kind, text, other) == pytest.approx(
                model.classify([(text, other)])[0].probabilities, abs=1e-5
            )
        elif kind == "regress":
            assert ran(tmp_path / kind, text) == pytest.approx(model.classify([text])[0].value, abs=1e-5)
        elif kind == "answer":
            assert (
                ran(tmp_path / kind, "who wrote it ?", other)["answer"] == model.answer("who wrote it ?", other).value
            )
        else:
            said = ran(tmp_path / kind, text, "fine", "awful", "red")
            assert list(said.values()) == pytest.approx(
                list(model.choose(text, ["fine", "awful", "red"]).probabilities.values()), abs=1e-5
            )


def test_the_folder_fills_masks_and_tags_without_litebert(tmp_path):
    model = load(toy_model(tmp_path / "toy"))
    filler = replace(model, network=build(model.config, [HeadConfig(kind="mlm")], 0))
    export_onnx(filler, tmp_path / "mlm")
    said = ran(tmp_path / "mlm", "the [MASK] was fine .")
    assert said == [
        [[guess.piece, pytest.approx(guess.probability, abs=1e-5)] for guess in filler.fill("the [MASK] was fine .")[0]]
    ]
    tagger = replace(model, network=build(model.config, [HeadConfig(kind="tag", labels=("O", "B-LOC"))], 0))
    export_onnx(tagger, tmp_path / "tag")
    said = ran(tmp_path / "tag", "eve went to rome.")
    assert [word["text"] for word in said] == ["eve", "went", "to", "rome", "."]
    assert {word["tag"] for word in said} <= {"O", "B-LOC"}


def test_the_command_says_how_near_the_file_is(tmp_path):
    model = taught(tmp_path / "toy", "classify")
    model.save(tmp_path / "toy")
    run = CliRunner()
    said = run.invoke(app, ["export", str(tmp_path / "toy"), "--to", str(tmp_path / "out"), "--as", "onnx", "--json"])
    found = json.loads(said.stdout)
    assert found["difference"] < 1e-4
    assert found["bytes"] == (tmp_path / "out" / "model.onnx").stat().st_size
    small = run.invoke(
        app, ["export", str(tmp_path / "toy"), "--to", str(tmp_path / "small"), "--as", "onnx", "--int8"]
    )
    assert small.exit_code == 0
    assert "largest difference" in small.stdout
    assert (tmp_path / "small" / "model.onnx").stat().st_size < found["bytes"]
    refused = run.invoke(app, ["export", str(tmp_path / "toy"), "--to", str(tmp_path / "x"), "--as", "hf", "--int8"])
    assert "are for --as onnx" in str(refused.exception)


def test_the_file_is_scored_beside_the_model(tmp_path):
    """In float32 both say the same, for every kind of task; in int8 nearly."""
    rows, answers = write_rows(tmp_path / "a.csv", classes(60)), write_rows(tmp_path / "q.jsonl", questions(30))
    for kind, file in (("classify", rows), ("answer", answers)):
        model = taught(tmp_path / kind, kind)
        if kind == "classify":
            task = replace(model.taught.task, label=("stars",))
            model = replace(model, taught=replace(model.taught, task=task))
        model.save(tmp_path / kind)
        for int8 in (False, True):
            words = ["export", tmp_path / kind, "--to", tmp_path / "out", "--as", "onnx", "--check", file, "--json"]
            done = CliRunner().invoke(app, [*map(str, words), *(["--int8"] if int8 else [])])
            assert done.exit_code == 0, (done.output, done.exception)
            for row in json.loads(done.stdout)["scores"]:
                assert row["file"] == pytest.approx(row["model"], abs=0.2 if int8 else 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_asking_the_file_is_asking_the_model(kind, tmp_path):
    make, ending, options, _ = KINDS[kind]
    file = write_rows(tmp_path / f"a{ending}", make(40))
    tune = TuneConfig(steps=3, batch=8, keep=0)
    task = TaskConfig(train=str(file), texts=options[1:2], label=options[3:4])
    recipe = TuneRecipe(model=str(toy_model(tmp_path / "toy", "albert")), task=task, tune=tune)
    finetune(recipe, tmp_path / "run", False, ALONE, lambda _: None)
    model = load(tmp_path / "run")
    export_onnx(model, tmp_path / "onnx")
    examples = read_examples(model.taught.task, file, "", "", (), ())[1]
    first, second = (
        [said for _, said, _ in listen([asked(each)], examples)]
        for each in (model, run_by_onnx(model, tmp_path / "onnx" / "model.onnx"))
    )
    for ours, theirs in zip(first, second, strict=True):
        if kind == "answer":
            assert ours.texts == theirs.texts
        else:
            assert np.allclose(ours, theirs, atol=1e-4)
