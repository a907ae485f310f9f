"""Distillation: the losses by hand, a student that equals its teacher, every other layer, and runs that resume."""

import json
import re
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from litebert.cli import app
from litebert.config import DistillConfig, HeadConfig, ModelConfig, UserError
from litebert.corpus.batches import START, Stream, take
from litebert.corpus.pack import pack
from litebert.export.hf import export_hf
from litebert.infer.model import Model, load
from litebert.model.encoder import attention_maps
from litebert.model.weights import build
from litebert.recipe import DataConfig, apply_sets, load_recipe
from litebert.strict import to_toml
from litebert.text.tokenizer import Tokenizer
from litebert.train import distill as module
from litebert.train import soft
from litebert.train.distill import Pupil, padded, terms
from litebert.train.feed import to_micro
from litebert.train.objective import build_objective, read_inputs
from tests.conftest import FAMILIES
from tests.train.conftest import MODEL, same, weights

SIZES = {"hidden_size": 32, "ffn_size": 64, "heads": 4, "positions": 64, "init_std": 0.2}
HEADS = [HeadConfig(kind="mlm"), HeadConfig(kind="pair")]
CPU = torch.device("cpu")


@pytest.fixture
def member(shards):
    """member('bert', layers=6): one that reads the pieces of the shards."""

    def make(family="bert", heads=HEADS[:1], seed=1, **more):
        tokenizer = Tokenizer.load(shards / "tokenizer")
        sizes = {**SIZES, "vocab_size": len(tokenizer), "pad_id": tokenizer.pad_id, "layers": 4}
        config = ModelConfig(**{**sizes, **FAMILIES[family], **more, "init_std": 0.2, "pad_id": tokenizer.pad_id})
        return Model(network=build(config, heads, seed), tokenizer=tokenizer)

    return make


@pytest.fixture
def taught_by(member, tmp_path):
    """The folder of a teacher."""

    def make(*args, name="teacher", **more):
        member(*args, **more).save(tmp_path / name)
        return str(tmp_path / name)

    return make


@pytest.fixture
def micro(shards):
    stream = Stream(str(shards), DataConfig().examples(32), 6)
    batch, _ = take(stream.examples(), stream, START)
    return to_micro(pack(batch, 32, 0, True), CPU)


def pupil(student, teacher, **settings):
    config = DistillConfig(teacher="x", **settings)
    taught = teacher.network.double().eval().requires_grad_(False)
    return build_objective(student.network, torch.float64, False, False, lambda net: Pupil(net, taught, config)).train()


@pytest.mark.parametrize("where", ["all", "masked"])
def test_every_term_is_what_its_formula_says(member, micro, where):
    """Straight from the definitions, on a padded batch, in float64."""
    student, teacher = member(layers=2), member(layers=4, seed=2)
    weights = {"soft": 1.0, "cosine": 1.0, "hidden": 1.0, "attention": 1.0, "temperature": 3.0, "where": where}
    objective = pupil(student, teacher, **weights)
    names = [term.name for term in terms(objective.config)]
    found = dict(zip(names, objective(micro).more, strict=True))
    ids, mask, types = padded(micro)
    real = mask.bool()
    mine, theirs = (model.network.encoder.hidden_states(ids, mask, types) for model in (student, teacher))
    logits = [
        model.network.heads["mlm"](states[-1], model.network.encoder.embeddings.words.weight)[real] / 3.0
        for model, states in ((student, mine), (teacher, theirs))
    ]
    if where == "masked":  # the pieces of both are in one order
        logits = [each[micro.positions[: micro.packed.masked].long()] for each in logits]
    p, q = logits[1].softmax(-1), logits[0].softmax(-1)
    torch.testing.assert_close(found["soft"], 9.0 * (p * (p / q).log()).sum(), rtol=1e-10, atol=1e-10)
    a, b = mine[-1][real], theirs[-1][real]
    angle = 1 - (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))
    torch.testing.assert_close(found["cosine"], angle.sum(), rtol=1e-10, atol=1e-10)
    pairs = ((1, 1), (2, 4))  # layers 0 and 1 of the student stand for 0 and 3
    apart = [((mine[s] - theirs[t])[real] ** 2).mean(-1).sum() for s, t in pairs]
    torch.testing.assert_close(found["hidden"], sum(apart) / 2, rtol=1e-10, atol=1e-10)
    maps = [attention_maps(model.network.encoder, ids, mask, types) for model in (student, teacher)]
    total = 0.0
    for s, t in ((0, 0), (1, 3)):
        one, other = (each.transpose(1, 2)[real] for each in (maps[0][s], maps[1][t]))  # (T, A, S)
        total += torch.where(other > 0, other * (other / one).log(), 0.0).nan_to_num().sum(-1).mean(-1).sum() / 2
    torch.testing.assert_close(found["attention"], total, rtol=1e-8, atol=1e-8)


def test_a_student_that_equals_its_teacher_has_nothing_to_learn_from_it(member, micro):
    student, teacher = member(), member()
    objective = pupil(student, teacher, soft=1.0, masked=0.0, cosine=0.0)
    more = objective(micro).more
    assert more.shape == (1,)
    more.sum().backward()
    assert abs(more.item()) < 1e-12
    for name, parameter in student.network.named_parameters():
        assert parameter.grad is None or parameter.grad.abs().max() < 1e-12, name


@pytest.mark.parametrize("top", [0, 3])
def test_the_vocabulary_is_in_memory_a_part_at_a_time(top, member, micro, monkeypatch):
    """And the sums and gradients are the same."""
    found, heard, compare = [], [], soft.compared
    for size in (4096, 7):
        for place in (module, soft):
            monkeypatch.setattr(place, "AT_ONCE", size)
        student = member(layers=2)
        objective = pupil(student, member(seed=2), cosine=0.0, top=top, where="masked" if top else "all")
        objective.compared = lambda mine, *rest: heard.append(len(mine)) or compare(mine, *rest)
        more = objective(micro).more
        more.sum().backward()
        found.append((more.detach(), student.network.encoder.trunk.ffn[0].up.weight.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    if not top:
        assert heard[0] == micro.packed.pieces > 7 >= max(heard[1:])


def test_only_what_learns_is_trained_saved_and_scored(member, micro):
    objective = pupil(member(layers=2), member(seed=2))
    assert not any("teacher" in name for name in objective.state_dict())
    assert len(objective.eval()(micro).more) == 0


def settings(teacher, **more):
    student = {**SIZES, **FAMILIES["distilbert"], "layers": 2}
    data = {"objective": "mlm", "layout": "full-sentences"}
    return {"model": student, "data": data, "distill": {"teacher": teacher, **more}}


def test_every_switch_changes_what_is_learned(train, taught_by):
    teacher = taught_by()
    plain, told = train(**settings(teacher))
    lines = [line for line in told if line["kind"] == "train"]
    assert lines[-1]["soft_loss"] < lines[0]["soft_loss"]
    assert lines[-1]["cosine_loss"] < lines[0]["cosine_loss"]
    for change in (
        {"soft": 0.0},
        {"masked": 0.0},
        {"cosine": 0.0},
        {"hidden": 1.0},
        {"attention": 1.0},
        {"temperature": 1.0},
        {"where": "masked"},
        {"top": 4},
        {"start": "fresh"},
    ):
        changed, _ = train(**settings(teacher, **change))
        assert not same(weights(plain), weights(changed)), change
    other, _ = train(**settings(taught_by(seed=5, name="other")))
    assert not same(weights(plain), weights(other))


def test_split_batches_teach_the_same(train, taught_by):
    teacher = taught_by()
    precise = {"precision": "fp64", "steps": 6}
    found = [
        weights(train(**settings(teacher, hidden=1.0), run={**precise, "micro_batch": size})[0]) for size in (0, 3)
    ]
    for name, tensor in found[0].items():
        torch.testing.assert_close(tensor.double(), found[1][name].double(), rtol=0, atol=1e-6)


def test_every_other_layer_is_where_the_student_begins(train, taught_by):
    teacher = taught_by(layers=12, heads=HEADS)
    told = settings(teacher)
    told["model"]["layers"] = 6
    folder, _ = train(**told, run={"steps": 1}, phases=[{"length": 32, "batch": 8, "rate": 1e-12}])
    old, new = load(teacher).network.state_dict(), load(folder).network.state_dict()
    for layer, source in enumerate((0, 2, 4, 7, 9, 11)):
        for part in ("attention.{}.qkv.weight", "attention.{}.norm.bias", "ffn.{}.up.weight", "ffn.{}.down.bias"):
            mine, theirs = (f"encoder.trunk.{part.format(at)}" for at in (layer, source))
            torch.testing.assert_close(new[mine], old[theirs], rtol=0, atol=1e-9)
    for name in ("encoder.embeddings.words.weight", "encoder.embeddings.positions.weight", "heads.mlm.dense.weight"):
        torch.testing.assert_close(new[name], old[name], rtol=0, atol=1e-9)
    assert not any("types" in name or "pooler" in name for name in new)


def test_the_student_is_a_distilbert_to_transformers(train, taught_by, tmp_path):
    library = pytest.importorskip("transformers", reason="pip install 'litebert[bench]'")
    folder, _ = train(**settings(taught_by(layers=4)))
    ours = load(folder)
    export_hf(ours, tmp_path / "hf")
    theirs = library.DistilBertForMaskedLM.from_pretrained(tmp_path / "hf").eval()
    ids = torch.randint(5, ours.config.vocab_size, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted = theirs(ids, attention_mask=torch.ones_like(ids)).logits
        torch.testing.assert_close(ours.network(ids)["mlm"], wanted, rtol=0, atol=1e-5)


def test_an_albert_teaches_and_learns(train, taught_by):
    """Sharing and order pairs too: which no released script can do."""
    teacher = taught_by("albert", heads=HEADS, layers=6)
    folder, told = train(model={**MODEL, "layers": 2}, distill={"teacher": teacher})
    line = [line for line in told if line["kind"] == "train"][-1]
    assert {"soft_loss", "cosine_loss", "order_loss"} <= set(line)
    assert load(folder).config.layers == 2


def test_stopped_and_resumed_equals_never_stopped(train, taught_by, interrupted):
    teacher = taught_by()
    whole, _ = train(**settings(teacher))
    half = whole.parent / "half"
    interrupted(module, "soft_targets", 7, lambda: train(folder=half, **settings(teacher)))
    again, _ = train(folder=half, resume=True, **settings(teacher))
    assert same(weights(whole), weights(again))


def test_the_likeliest_answers_and_the_rest_as_one(member, micro):
    """By hand in float64; with as many as there are pieces it is the whole loss."""
    student, teacher = member(layers=2), member(seed=2)
    size = teacher.config.vocab_size
    whole, every, few = (
        pupil(student, teacher, cosine=0.0, where="masked", top=top)(micro).more.item() for top in (0, size, 3)
    )
    assert every == pytest.approx(whole, rel=1e-4)
    states = [model.network.encoder(**read_inputs(model.network, micro)) for model in (student, teacher)]
    at = micro.positions[: micro.packed.masked].long()
    q, p = (
        (model.network.heads["mlm"](each, model.network.encoder.embeddings.words.weight, at) / 2).softmax(-1)
        for model, each in zip((student, teacher), states, strict=True)
    )
    best = p.topk(3).indices
    a, b = q.gather(1, best), p.gather(1, best)
    rest = (1 - b.sum(1)) * ((1 - b.sum(1)) / (1 - a.sum(1))).log()
    assert few == pytest.approx((4 * ((b * (b / a).log()).sum() + rest.sum())).item(), rel=1e-5)


KEPT = {"cosine": 0.0, "top": 8, "where": "masked"}


def test_answers_on_disk_teach_what_the_teacher_would(train, taught_by, tmp_path, monkeypatch):
    teacher, cache = taught_by(), str(tmp_path / "answers")
    asked = []
    real = Pupil._likeliest
    monkeypatch.setattr(Pupil, "_likeliest", lambda self, *rest: asked.append(1) or real(self, *rest))
    plain, _ = train(**settings(teacher, **KEPT))
    counts = [len(asked)]
    for folder in ("filled", "read"):
        found, told = train(**settings(teacher, **KEPT, cache=cache))
        assert same(weights(plain), weights(found)), folder
        counts.append(len(asked))
    assert counts[1] - counts[0] == 20
    assert any("reading the teacher's answers takes" in line.get("text", "") for line in told)
    read = any("they are read" in line.get("text", "") for line in told)
    assert counts[2] - counts[1] == (module.TRIALS if read else 20)


def test_whichever_is_quicker_is_done(member, micro):
    said = []
    for read, asked, kept in ((0.001, 0.002, True), (0.003, 0.002, False)):
        objective = pupil(member(layers=2), member(seed=2), **KEPT)
        objective.kept, objective.say = object(), said.append
        objective.times = [(read, asked)] * module.TRIALS
        objective._choose()
        assert (objective.kept is not None) == kept
    assert "they are read" in said[0]
    assert "they are asked for" in said[1]


def test_half_a_file_of_answers_is_asked_for_again(train, taught_by, tmp_path):
    teacher, cache = taught_by(), tmp_path / "answers"
    whole, _ = train(**settings(teacher, **KEPT, cache=str(cache)))
    for file in cache.iterdir():
        if file.name != "answers.json":
            file.write_bytes(file.read_bytes()[:-3])
    again, _ = train(**settings(teacher, **KEPT, cache=str(cache)))
    assert same(weights(whole), weights(again))


def test_answers_to_something_else_are_refused_each_with_its_line(train, taught_by, tmp_path):
    teacher, cache = taught_by(), str(tmp_path / "answers")
    train(**settings(teacher, **KEPT, cache=cache))
    other = taught_by(seed=9, name="other")

    def refused(sentence, teacher=teacher, run=None, phases=None, **more):
        told = settings(teacher, **{**KEPT, **more}, cache=cache)
        with pytest.raises(UserError, match=re.escape(f"the answers in {cache} {sentence}")):
            train(**told, run=run or {}, phases=phases)

    refused("are those of another teacher", teacher=other)
    refused("were kept with another temperature, top or where", top=4)
    refused("were kept with another temperature, top or where", temperature=3.0)
    refused("are to other examples of these shards", run={"seed": 4})
    refused(
        "are to other examples of these shards", phases=[{"length": 32, "batch": 8, "rate": 0.01, "mask_rate": 0.4}]
    )
    known = json.loads((tmp_path / "answers" / "answers.json").read_text())
    for name, sentence in (("tokenizer", "are in the pieces of another tokenizer"), ("shards", "are to other shards")):
        (tmp_path / "answers" / "answers.json").write_text(json.dumps({**known, name: "x"}))
        refused(sentence)
    for wrong, sentence in (({"top": 0}, "say how many of each"), ({"cosine": 1.0}, "keeps probabilities, not states")):
        with pytest.raises(UserError, match=sentence):
            DistillConfig(teacher="x", **{**KEPT, "cache": "y", **wrong})


def test_who_cannot_teach_is_told_in_one_line(train, taught_by, member, corpus, tmp_path):
    german = Tokenizer.load(corpus("unigram", "de", 300, 0.1) / "tokenizer")
    reader = replace(member(), tokenizer=german)
    reader.save(tmp_path / "german")
    wide = {"hidden_size": 48, "embedding_size": 48}
    for teacher, more, sentence in (
        (taught_by(heads=[], name="bare"), {}, "has no masked-LM head"),
        (str(tmp_path / "german"), {}, "reads other pieces than the shards are made of"),
        (taught_by(name="wide", **wide), {}, "distill.cosine compares states"),
        (taught_by(name="wide", **wide), {"cosine": 0.0}, "set distill.start = 'fresh'"),
        (taught_by(name="short", positions=32), {}, "positions, fewer than its student's 64"),
        (
            taught_by(name="two", num=0) if False else taught_by(name="h2", heads=HEADS[:1]),
            {"soft": -1.0},
            "soft = -1.0",
        ),
    ):
        with pytest.raises(UserError, match=re.escape(sentence)):
            train(**settings(teacher, **more))
    with pytest.raises(UserError, match=re.escape("every weight in [distill] is 0")):
        DistillConfig(soft=0.0, masked=0.0, cosine=0.0)
    with pytest.raises(UserError, match="both say what the student begins with"):
        train(**settings(taught_by(name="t")), run={"init_from": taught_by(name="t")})
    with pytest.raises(UserError, match="a teacher and a dial at once"):
        train(distill={"teacher": taught_by("albert", name="a"), "start": "fresh"}, dial={"depths": [1]})
    heads = {**settings(taught_by(name="t"), attention=1.0), "model": {**SIZES, **FAMILIES["distilbert"], "heads": 2}}
    with pytest.raises(UserError, match=r"distill\.attention compares heads"):
        train(**heads)


def test_a_student_may_go_on_from_where_it_was(train, taught_by):
    teacher = taught_by()
    first, _ = train(**settings(teacher))
    still = [{"length": 32, "batch": 8, "rate": 1e-12}]
    again, _ = train(**settings(teacher, start="fresh"), run={"init_from": str(first), "steps": 1}, phases=still)
    for name, tensor in weights(first).items():
        torch.testing.assert_close(weights(again)[name], tensor, rtol=0, atol=1e-9)


def test_the_command(train, table, taught_by, tmp_path):
    teacher = taught_by()
    found, _ = train(**settings(teacher))
    recipe = tmp_path / "mine.toml"
    recipe.write_text(to_toml(apply_sets(table(**settings("")), [])))
    words = ["distill", str(recipe), "--to", str(tmp_path / "run"), "--device", "cpu"]
    said = CliRunner().invoke(app, [*words, "--teacher", teacher], catch_exceptions=False)
    assert "soft loss" in said.stderr
    assert same(weights(found), weights(tmp_path / "run"))
    for wrong, sentence in (
        (words, "say who teaches: --teacher MODEL"),
        (["distill", "--to", "x"], "name a recipe"),
        (["distill", str(recipe)], "say where the run shall live"),
        (["distill", "--to", "x", "--resume", "--teacher", teacher], "--teacher change a recipe; name it"),
        (["pretrain", "distilbert-base", "--to", "x"], "a section [distill] without teacher; say who teaches"),
        (["pretrain", "cpu-demo", "--to", "x", "--set", "dial.weight=2.0"], "a section [dial] without depths"),
    ):
        with pytest.raises(UserError, match=re.escape(sentence)):
            CliRunner().invoke(app, wrong, catch_exceptions=False)


def test_the_shipped_recipe_is_the_authors():
    recipe = load_recipe("distilbert-base")
    assert (recipe.distill.soft, recipe.distill.masked, recipe.distill.cosine, recipe.distill.temperature) == (
        5,
        2,
        1,
        2,
    )
    assert (recipe.model.layers, recipe.model.token_types, recipe.model.pooler) == (6, 0, False)
    assert recipe.optimizer.clip == 5.0
