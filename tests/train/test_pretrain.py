"""Runs: they learn, they resume bit for bit, they grow, and they stop with one line and nothing lost."""

import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

import litebert
from litebert.config import UserError
from litebert.model.weights import load_network
from litebert.recipe import apply_sets, load_recipe
from litebert.strict import to_toml
from litebert.train import objective
from litebert.train.pretrain import pretrain
from litebert.train.processes import joined
from tests import forked
from tests.train.conftest import metrics, same, weights

GROWING = [
    {"passes": 2, "length": 16, "batch": 8, "rate": 0.01, "share": 2, "warmup": 3},
    {"passes": 4, "length": 32, "batch": 8, "rate": 0.005, "share": 1},
]


def start(table, folder, tmp_path, *more):
    """A run in a process of its own."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(to_toml(apply_sets(table, [])))
    words = ["pretrain", "--to", str(folder), "--device", "cpu", *more]
    return forked.Started(words if "--resume" in more else [*words, str(recipe)], tmp_path)


def test_training_lowers_the_loss_and_leaves_a_model_that_loads(train):
    folder, told = train(run={"steps": 60, "log_every": 20, "hold": 0.5}, evaluate={"every": 30})
    lines = [line for line in told if line["kind"] == "train"]
    assert [line["step"] for line in lines] == [20, 40, 60]
    assert lines[-1]["masked_loss"] < lines[0]["masked_loss"] - 0.2
    looks = [line for line in told if line["kind"] in ("held-out", "final")]
    assert [line["step"] for line in looks] == [0, 30, 60]
    assert looks[-1]["protocol"]["masked_loss"] < looks[0]["protocol"]["masked_loss"] - 0.2
    assert {"masked_accuracy", "perplexity", "order_accuracy", "bits_per_character"} <= set(looks[-1]["protocol"])
    model = litebert.load(folder)
    assert model.tokenizer is not None
    assert [head.kind for head in model.network.head_configs] == ["mlm", "pair"]
    assert same(dict(model.network.state_dict()), weights(folder))
    assert len(list((folder / "checkpoints").iterdir())) == 2


def test_stopped_by_kill_at_five_moments_equals_never_stopped(table, train, tmp_path):
    settings = {"run": {"steps": 90, "save_every": 7, "log_every": 4, "workers": 1}, "evaluate": {"every": 18}}
    whole, _ = train(phases=GROWING, **settings)
    folder, luck = tmp_path / "killed", random.Random(7)
    moments = sorted(luck.sample(range(8, 84, 4), 5))
    assert any(moment < 60 for moment in moments)
    assert any(moment > 60 for moment in moments)  # growth and length change at 60
    recipe = table(phases=GROWING, **settings)
    for number, moment in enumerate(moments):
        process = start(recipe, folder, tmp_path, *(["--resume"] if number else []))
        while True:
            assert process.at_work(), process.said()
            path = folder / "metrics.jsonl"
            if path.is_file() and f'"step": {moment},' in path.read_text():
                break
            time.sleep(0.01)
        time.sleep(luck.random() / 10)
        process.send(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert not (folder / "model").exists()
    process = start(recipe, folder, tmp_path, "--resume")
    assert process.wait() == 0, process.said()
    assert same(weights(whole), weights(folder))
    assert metrics(whole) == metrics(folder)
    assert same(
        *(load_file(run / "checkpoints" / "step-00000090" / "optimizer.safetensors") for run in (whole, folder))
    )


def test_dropout_is_the_same_after_resuming(train, interrupted):
    model = {"dropout": 0.2, "attention_dropout": 0.1}
    whole, _ = train(model=model)
    stopped = interrupted(objective, "masked_loss", 13, lambda: train(folder=whole.parent / "half", model=model))
    assert stopped.step == 15  # the signal came in step 14 and is seen with the next batch
    assert stopped.signum == signal.SIGTERM
    again, told = train(folder=whole.parent / "half", resume=True, model=model)
    assert told[0] == {"kind": "note", "text": "going on from step 15"}
    assert same(weights(whole), weights(again))
    assert metrics(whole) == metrics(again)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_says_how_to_go_on(signum, table, tmp_path):
    folder = tmp_path / "run"
    process = start(table(run={"steps": 100_000, "save_every": 1_000_000}), folder, tmp_path)
    while not (folder / "metrics.jsonl").is_file() or not (folder / "metrics.jsonl").read_text():
        assert process.at_work(), process.said()
        time.sleep(0.02)
    process.send(signum)
    assert process.wait(60) == 128 + signum
    said = process.said()
    assert f"go on with: litebert pretrain --to {folder} --resume" in said
    assert "Traceback" not in said
    assert len(list((folder / "checkpoints").iterdir())) == 1


@pytest.mark.parametrize("sharing", ["all", "none"])
def test_muon_resumes_across_growth_and_its_knobs_count(sharing, train, interrupted):
    settings = {"phases": GROWING, "model": {"sharing": sharing}}
    muon = {"kind": "muon", "correct_bias": True}
    whole, _ = train(run={"steps": 12}, optimizer=muon, **settings)
    half = whole.parent / "half"
    for calls in (3, 6):  # in the first phase, and in the one after growth
        interrupted(
            objective,
            "masked_loss",
            calls,
            lambda: train(half, half.exists(), run={"steps": 12}, optimizer=muon, **settings),
        )
    train(half, resume=True, run={"steps": 12}, optimizer=muon, **settings)
    assert same(weights(whole), weights(half))
    for knob in ({"momentum": 0.5}, {"rms": 0.4}, {"tables": 3.0}):
        other, _ = train(run={"steps": 12}, optimizer=muon | knob, **settings)
        assert not same(weights(whole), weights(other)), knob


def test_a_finished_run_resumed_changes_nothing(train):
    folder, _ = train()
    before = weights(folder), metrics(folder)
    train(folder=folder, resume=True)
    assert same(before[0], weights(folder))
    assert before[1] == metrics(folder)


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ({"sharing": "all"}, (1, 1)),
        ({"sharing": "all", "groups": 2}, (2, 2)),
        ({"sharing": "none"}, (4, 4)),
        ({"sharing": "attention"}, (1, 4)),
        ({"family": "bert", "sharing": "none", "embedding_size": 32}, (4, 4)),
    ],
)
def test_growth_trains_every_plan_to_its_full_depth(model, parts, train):
    folder, _ = train(phases=GROWING, model=model, run={"steps": 9, "save_every": 6})
    network, _ = load_network(folder / "model")
    assert network.config.layers == 4
    assert (len(network.encoder.trunk.attention), len(network.encoder.trunk.ffn)) == parts
    shallow, _ = load_network(folder / "checkpoints" / "step-00000006")
    assert shallow.config.layers == 2


def test_the_number_of_steps_that_fits_a_budget_is_fixed_once(train):
    short = {"steps": 0, "budget_minutes": 0.02, "save_every": 4}
    folder, told = train(run=short, phases=GROWING)
    plan = json.loads((folder / "plan.json").read_text())
    assert len(plan["seconds_a_step"]) == 2
    assert metrics(folder)[-1]["step"] == plan["steps"]
    assert any(f"{plan['steps']:,} steps fit 0.02 minutes" in line.get("text", "") for line in told)
    (folder / "plan.json").write_text(json.dumps(plan | {"steps": plan["steps"] + 3}))
    shutil.rmtree(folder / "model")
    train(folder=folder, resume=True, run=short, phases=GROWING)
    assert metrics(folder)[-1]["step"] == plan["steps"] + 3


def test_a_run_starts_from_another_of_any_depth(train, table):
    shallow, _ = train(phases=[GROWING[0]])
    folder, told = train(run={"init_from": str(shallow), "steps": 1}, phases=[{**GROWING[1], "rate": 1e-9}])
    assert any("started from" in line.get("text", "") for line in told)
    for name, tensor in weights(shallow).items():
        torch.testing.assert_close(weights(folder)[name], tensor, rtol=0, atol=1e-6)


def test_pre_training_continues_a_published_model_and_says_what_was_fresh(train, shards, tmp_path, small):
    from litebert.config import HeadConfig
    from litebert.infer.model import Model
    from litebert.model.weights import build, export_network
    from litebert.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(shards / "tokenizer")
    config = small("bert", vocab_size=len(tokenizer), positions=64, pooler=False, pad_id=tokenizer.pad_id)
    network = build(config, [HeadConfig(kind="mlm")], seed=5)
    export_network(network, tmp_path / "theirs")
    tokenizer.save(tmp_path / "theirs")
    folder, told = train(
        run={"init_from": str(tmp_path / "theirs"), "steps": 1},
        phases=[{"length": 32, "batch": 8, "rate": 1e-9}],
    )
    text = " ".join(line.get("text", "") for line in told)
    assert "fresh weights for what it lacks: encoder.pooler, heads.pair.out" in text
    model = litebert.load(folder)
    assert model.config.family == "bert"
    assert model.config.layers == 4
    for name, tensor in network.state_dict().items():
        torch.testing.assert_close(model.network.state_dict()[name], tensor, rtol=0, atol=1e-6)
    assert isinstance(model, Model)


def test_switches_change_what_is_trained(train):
    def few(**sections):
        return train(**sections | {"run": {"steps": 6} | sections.get("run", {})})

    plain, _ = few()
    for sections in (
        {"optimizer": {"kind": "adamw"}},
        {"optimizer": {"kind": "muon"}},
        {"optimizer": {"correct_bias": True}},
        {"optimizer": {"clip": 0.0}},
        {"optimizer": {"weight_decay": 0.5}},
        {"optimizer": {"betas": [0.9, 0.9]}},
        {"optimizer": {"eps": 0.1}},
        {"run": {"seed": 1}},
        {"run": {"hold": 0.8}},
        {"run": {"precision": "bf16"}},
        {"run": {"precision": "fp64"}},
        {"data": {"objective": "nsp"}},
        {"data": {"mask": {"rate": 0.3}}},
        {"phases": [{"length": 32, "batch": 8, "rate": 0.01, "warmup": 3, "pair_weight": 3.0}]},
        {"phases": [{"length": 32, "batch": 8, "rate": 0.01, "warmup": 3, "mask_rate": 0.4}]},
        {"data": {"twins": True}},
        {"data": {"anywhere": 1.0}},
    ):
        changed, _ = few(**sections)
        assert not same(weights(plain), {k: v.float() for k, v in weights(changed).items()}), sections
    for sections in ({"run": {"checkpointing": True}}, {"run": {"workers": 1}}):
        equal, _ = few(**sections)
        assert same(weights(plain), weights(equal)), sections


def test_losses_of_masked_words_alone_need_no_pooler(train):
    folder, told = train(model={"pooler": False}, data={"objective": "mlm", "layout": "full-sentences"})
    assert [head.kind for head in litebert.load(folder).network.head_configs] == ["mlm"]
    assert not any("order_accuracy" in line for line in told)
    with pytest.raises(UserError, match="objective = 'sop' reads the pooler"):
        train(model={"pooler": False})


def test_masked_words_alone_with_a_pooler_that_nothing_teaches(train, monkeypatch):
    """It stays as it is, through growth and resuming."""
    settings = {"data": {"objective": "mlm"}, "run": {"steps": 12, "save_every": 3}, "phases": GROWING}
    whole, _ = train(**settings)
    pooler = weights(whole)["encoder.pooler.weight"]
    first = load_file(whole / "checkpoints" / "step-00000009" / "model.safetensors")["encoder.pooler.weight"]
    assert torch.equal(pooler, first)
    shutil.rmtree(whole / "model")
    shutil.rmtree(whole / "checkpoints" / "step-00000012")
    again, _ = train(folder=whole, resume=True, **settings)
    assert torch.equal(weights(again)["encoder.pooler.weight"], pooler)


def test_a_corpus_without_held_out_documents_trains_and_says_that_nothing_is_scored(train, corpus):
    folder, told = train(data={"shards": str(corpus("unigram", "en", 300))}, evaluate={"every": 5})
    assert told[0]["text"].startswith("no score on unseen text: the held-out part of")
    assert not any(line["kind"] in ("held-out", "final") for line in told)
    assert litebert.load(folder).tokenizer is not None


def test_a_recipe_written_out_reads_back_the_same(table, tmp_path):
    recipe = apply_sets(table(phases=GROWING), ['run.init_from="a \\"strange\\" name"', "optimizer.kind=adamw"])
    (tmp_path / "again.toml").write_text(to_toml(recipe))
    assert load_recipe(str(tmp_path / "again.toml")) == recipe


def test_the_vocabulary_is_the_tokenizers(train, shards):
    folder, _ = train(model={"vocab_size": 31337})
    assert litebert.load(folder).config.vocab_size == 100
    assert "vocab_size = 100" in (folder / "recipe.toml").read_text()


def test_tensorboard_shows_what_the_lines_say(train):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder, _ = train(evaluate={"every": 10})
    board = reader.EventAccumulator(str(folder / "tensorboard"))
    board.Reload()
    shown = {event.step: event.value for event in board.Scalars("masked_loss")}
    lines = {line["step"]: line["masked_loss"] for line in metrics(folder) if line["kind"] == "train"}
    assert shown == pytest.approx(lines)
    assert "protocol.masked_accuracy" in board.Tags()["scalars"]


class TestErrors:
    def test_a_second_process_is_refused(self, table, train, tmp_path):
        folder = tmp_path / "run"
        process = start(table(run={"steps": 100_000}), folder, tmp_path)
        while not (folder / "metrics.jsonl").is_file():
            assert process.at_work(), process.said()
            time.sleep(0.02)
        with pytest.raises(UserError, match="another process is training in"):
            train(folder=folder, resume=True, run={"steps": 100_000})
        process.send(signal.SIGKILL)
        process.wait()

    def test_a_directory_that_holds_a_run_is_not_overwritten(self, train):
        folder, _ = train()
        with pytest.raises(UserError, match="holds a run already; go on with it by --resume"):
            train(folder=folder)

    def test_another_architecture_on_resume_is_named(self, train):
        folder, _ = train()
        before = weights(folder)
        with pytest.raises(UserError, match=r"begun with another recipe: model\.hidden_size differ"):
            train(folder=folder, resume=True, model={"hidden_size": 64})
        assert same(before, weights(folder))
        train(folder=folder, resume=True, run={"log_every": 7})  # how, not what

    def test_a_read_only_directory_is_one_line(self, train, tmp_path):
        if os.geteuid() == 0:
            target = "/proc/run"  # root may write anywhere but there
        else:
            (tmp_path / "closed").mkdir(mode=0o500)
            target = str(tmp_path / "closed" / "run")
        done = forked.run(["pretrain", "--to", target, "cpu-demo", "--set", "data.shards=x"], tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith(f"litebert: cannot write {target}: ")
        assert len(done.stderr.splitlines()) == 1

    def test_a_full_disk_leaves_the_last_checkpoint_intact(self, table, tmp_path):
        mount = tmp_path / "small"
        mount.mkdir()
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)], capture_output=True)
        if made.returncode:
            pytest.skip("mounting a small tmpfs needs root")
        try:
            recipe = table(model={"hidden_size": 64, "ffn_size": 256}, run={"steps": 400, "save_every": 5, "keep": 9})
            process = start(recipe, mount / "run", tmp_path)
            code, said = process.wait(120), process.said()
            assert code == 2, said
            last = said.splitlines()[-1]
            assert "No space left on device; the last checkpoint, step-" in last
            kept = sorted((mount / "run" / "checkpoints").iterdir())
            assert kept
            assert kept[-1].name in last
            load_network(kept[-1])
            assert not list((mount / "run" / "checkpoints").glob(".*"))
            for old in kept[:-1]:
                shutil.rmtree(old)
            shutil.rmtree(mount / "run" / "tensorboard", ignore_errors=True)
            step = int(kept[-1].name.removeprefix("step-"))
            process = start(recipe, mount / "run", tmp_path, "--resume")
            process.wait(120)
            said = process.said()
            assert f"going on from step {step}" in said
        finally:
            subprocess.run(["umount", "-l", str(mount)], check=True)

    def test_a_loss_that_is_not_finite_skips_the_step_and_is_counted(self, train, monkeypatch):
        spoil(monkeypatch, {7, 8})
        folder, told = train()
        assert [line["skipped"] for line in told if line["kind"] == "train"] == [0, 2, 2, 2]
        assert all(torch.isfinite(tensor).all() for tensor in weights(folder).values())

    def test_too_many_in_a_row_stop_the_run_with_the_last_checkpoint_intact(self, train, tmp_path, monkeypatch):
        spoil(monkeypatch, range(12, 40))
        sentence = r"not finite in 3 steps in a row; the last checkpoint, step-00000010, is intact; start again from it"
        settings = {"most_skips": 3, "log_every": 1}
        with pytest.raises(UserError, match=sentence):
            train(folder=tmp_path / "bad", run=settings)
        monkeypatch.undo()
        train(folder=tmp_path / "bad", resume=True, run=settings)
        good, _ = train(run=settings)
        assert same(weights(good), weights(tmp_path / "bad"))

    def test_a_row_of_skips_that_is_over_does_not_stop_the_run_again(self, train, tmp_path, monkeypatch):
        """A checkpoint between the last of them and the line that would have told is not written."""
        settings = {"most_skips": 3, "log_every": 10, "save_every": 7}
        spoil(monkeypatch, range(2, 6))
        with pytest.raises(UserError, match=r"not finite in 4 steps in a row; no checkpoint was written yet"):
            train(folder=tmp_path / "bad", run=settings)
        monkeypatch.undo()
        train(folder=tmp_path / "bad", resume=True, run=settings)
        good, _ = train(run=settings)
        assert same(weights(good), weights(tmp_path / "bad"))

    def test_the_very_first_step_may_be_skipped(self, train, monkeypatch):
        spoil(monkeypatch, {1})
        folder, told = train(optimizer={"kind": "adamw", "correct_bias": True})
        assert next(line for line in told if line["kind"] == "train")["skipped"] == 1
        assert all(torch.isfinite(tensor).all() for tensor in weights(folder).values())

    def test_what_the_advice_says_can_be_done(self, train, tmp_path, monkeypatch):
        """Out of memory: fewer at once, or activations computed again, and resume; it stays that way."""
        spoil(monkeypatch, range(12, 40))
        with pytest.raises(UserError):
            train(folder=tmp_path / "bad", run={"most_skips": 3})
        monkeypatch.undo()
        train(folder=tmp_path / "bad", resume=True, run={"most_skips": 3, "checkpointing": True, "micro_batch": 4})
        stored = load_recipe(str(tmp_path / "bad" / "recipe.toml"))
        assert (stored.run.checkpointing, stored.run.micro_batch) == (True, 4)

    def test_a_recipe_that_cannot_run_leaves_nothing_in_the_way(self, train, tmp_path):
        with pytest.raises(UserError, match="too few for 2 phases"):
            train(folder=tmp_path / "run", run={"steps": 1}, phases=GROWING)
        assert not (tmp_path / "run").exists()
        train(folder=tmp_path / "run", phases=GROWING)

    def test_a_full_disk_while_logging_is_one_line(self, table, tmp_path):
        """Files may not grow beyond 2 kB: the metrics reach that before any checkpoint."""
        code = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); "
        code += "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from litebert.cli import main; main()"
        recipe = tmp_path / "recipe.toml"
        recipe.write_text(to_toml(apply_sets(table(run={"steps": 500, "log_every": 1, "save_every": 500}), [])))
        words = ["pretrain", str(recipe), "--to", str(tmp_path / "run"), "--device", "cpu"]
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
        assert done.returncode == 2, done.stderr
        lines = [line for line in done.stderr.splitlines() if line.startswith("litebert: ")]
        assert len(lines) == 1
        assert "metrics.jsonl: File too large; no checkpoint was written yet" in lines[0]

    def test_whatever_breaks_a_run_ends_the_processes_that_make_its_batches(self, train, monkeypatch):
        """They do not listen to SIGTERM, so an exit that waited for them would wait for ever."""
        from litebert.train.totals import Totals

        def breaks(*_):
            raise ZeroDivisionError

        monkeypatch.setattr(Totals, "add", breaks)
        with pytest.raises(ZeroDivisionError) as problem:
            train(run={"workers": 2})
        for _ in range(100):
            if not multiprocessing.active_children():
                break
            time.sleep(0.05)
        assert problem.tb is not None  # what the run held is still held here
        assert not multiprocessing.active_children()

    def test_out_of_memory_is_one_line(self, train, monkeypatch):
        def explode(*_):
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")

        monkeypatch.setattr(objective, "masked_loss", explode)
        with pytest.raises(
            UserError, match=r"^out of memory; set run.micro_batch lower .* no checkpoint was written yet$"
        ):
            train()

    @pytest.mark.parametrize(
        ("sections", "sentence"),
        [
            ({"data": {"shards": ""}}, "say which shards to train on: --set data.shards=FOLDER"),
            ({"data": {"shards": "/nowhere"}}, "no shards under /nowhere; make them with: litebert corpus build"),
            ({"run": {"steps": 0}}, "say how long to train: --set run.steps=N"),
            ({"phases": [{"length": 512}]}, "a phase of length 512 does not fit the model's 64 positions"),
            ({"model": {"groups": 3}, "phases": GROWING}, "passes = 2 is fewer than the model's groups = 3"),
            ({"run": {"steps": 1}, "phases": GROWING}, "1 steps are too few for 2 phases"),
            ({"optimizer": {"kind": "muon"}, "run": {"parallel": "fsdp"}}, "Muon needs whole matrices"),
            ({"optimizer": {"momentum": 1.0}}, "momentum = 1.0 must be at least 0 and below 1"),
            ({"optimizer": {"rms": 0.0}}, "rms = 0.0 must be above 0"),
            ({"optimizer": {"tables": 0.0}}, "tables = 0.0 must be above 0"),
        ],
    )
    def test_a_recipe_that_cannot_run_says_why(self, sections, sentence, train):
        with pytest.raises(UserError, match=sentence):
            train(**sections)

    def test_a_checkpoint_that_was_damaged_is_named(self, train):
        folder, _ = train()
        shutil.rmtree(folder / "model")
        path = folder / "checkpoints" / "step-00000020" / "optimizer.safetensors"
        path.write_bytes(path.read_bytes()[:1000])
        with pytest.raises(
            UserError, match=r"step-00000020 cannot be read: .*; remove it to go on from the one before"
        ):
            train(folder=folder, resume=True)


def spoil(monkeypatch, steps):
    """NaN in the loss of these steps, counted from 1."""
    calls = iter(range(1, 1000))

    def broken(head, states, *rest):
        loss, right = original(head, states, *rest)
        if states.requires_grad and next(calls) in steps:
            loss = loss * torch.nan
        return loss, right

    original = objective.masked_loss
    monkeypatch.setattr(objective, "masked_loss", broken)


def test_nothing_is_resumed_where_nothing_is(tmp_path):
    with joined("cpu") as processes, pytest.raises(UserError, match=r"there is no run in .* to resume"):
        pretrain(None, tmp_path / "none", True, processes, print)
