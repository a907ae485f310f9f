"""The command line: figures as JSON, one line and exit 2 for a mistake, nothing half-written."""

import json
import shlex
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from litebert.cli import app, main, show
from litebert.cli.model import how_to_serve
from litebert.config import HeadConfig, UserError
from litebert.infer.model import Model
from litebert.model.weights import build
from tests.serve.conftest import process


def run(*words):
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def as_json(*words):
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_info_gives_exact_integers_as_json():
    facts = as_json("info", "albert-base-v2")
    assert facts["parameters"]["backbone_and_pooler"] == 11_683_584
    assert facts["plan"] == [[0, 0]] * 12
    assert facts["bytes"]["bfloat16"] == 2 * 11_683_584
    assert set(facts["flops_per_piece"]) == {"128", "512"}
    assert facts["training_memory_bytes"]["512"]["32"] > facts["training_memory_bytes"]["128"]["32"]


def test_info_takes_settings_recipes_and_folders(small, tmp_path):
    assert as_json("info", "albert-base", "--set", "model.sharing=none")["parameters"]["backbone"] == 89_059_584
    assert as_json("info", "cpu-demo")["config"]["hidden_size"] == 128
    Model(network=build(small(), [HeadConfig(kind="classify", labels=("a", "b"))])).save(tmp_path)
    facts = as_json("info", str(tmp_path))
    assert facts["parameters"]["parts"]["classify head"] == 2 * 32 + 2


@pytest.mark.parametrize("table", ["sizes", "embedding", "sharing"])
def test_tables_print_for_people_and_for_programs(table):
    rows = as_json("info", "--table", table)
    text = run("info", "--table", table).stdout
    for row in rows:
        assert f"{row['ours']:,}" in text
        assert row["printed"] in text


def test_fit_prints_the_batches_of_berts_table():
    found = as_json("info", "bert-base", "--fit", "12GiB")
    assert [row["length"] for row in found["rows"]] == [64, 128, 256, 320, 384, 512]
    assert found["budget_bytes"] == 12 << 30
    text = run("info", "bert-base", "--fit", "12GiB").stdout
    assert all(str(row["batch"]) in text for row in found["rows"])
    assert "does not fit" in run("info", "bert-xlarge", "--fit", "12GiB").stdout


def test_plain_output_names_every_part():
    text = run("info", "albert-base").stdout
    for part in ("words", "feed-forward", "11,683,584", "layers 1-12: attention 0, ffn 0", "MFLOP", "batch 128"):
        assert part in text


def test_the_demo_trains_fills_a_mask_and_says_how_to_serve_what_it_made(tmp_path):
    found = as_json("demo", "--steps", "60", "--tune-steps", "1", "--to", str(tmp_path / "made"))
    assert found["parameters"]["albert-base"] == 11683584
    accuracies = [look["masked_accuracy"] for look in found["held_out"]]
    assert accuracies[0] < 0.01 < accuracies[-1]
    assert len(found["fill"]) == 5
    assert found["authors"]["name"] == "accuracy"
    assert len(found["answers"]) == 3
    _, serve, folder = shlex.split(how_to_serve(tmp_path / "made").removeprefix("to try it in a browser: "))[:3]
    assert (serve, folder) == ("serve", str(tmp_path / "made"))
    pytest.importorskip("fastapi", reason="pip install 'litebert[serve]'")
    httpx = pytest.importorskip("httpx", reason="pip install httpx")
    with process(folder) as (_, address):
        told = httpx.post(f"{address}/v1/classify", json={"texts": ["He looked at her."]}).json()["answers"]
    assert len(told[0]["probabilities"]) == 10


def test_the_demo_does_not_write_into_a_folder_of_something_else(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="holds no model; choose another folder"):
        run("demo", "--to", str(tmp_path))


def test_export_and_convert_go_round(small, tmp_path):
    network = build(small(sharing="attention"), [HeadConfig(kind="mlm")], seed=1)
    Model(network=network).save(tmp_path / "a")
    out = run("export", str(tmp_path / "a"), "--to", str(tmp_path / "b"))
    assert "note: transformers cannot say sharing 'attention'" in out.stdout
    assert as_json("convert", str(tmp_path / "b"), "--to", str(tmp_path / "c"))["heads"] == ["mlm"]
    ids = torch.tensor([[5, 6, 7]])
    import litebert

    torch.testing.assert_close(
        litebert.load(tmp_path / "c").encoder(ids), network.eval().encoder(ids), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["info"], "say what: a preset (albert-base, "),
        (["info", "albert-bsae"], "'albert-bsae' is no preset, recipe or folder; did you mean 'albert-base'?"),
        (["info", "albert-base", "--set", "model.heds=3"], "unknown key 'heds' in [model]; did you mean 'heads'?"),
        (["info", "albert-base", "--fit", "much"], "'much' is not an amount of memory"),
        (["info", "--table", "nope"], "no table 'nope'; the tables: sizes, embedding, sharing"),
        (["info", "albert-base", "--table", "sizes"], "--table prints a paper's table and takes no model"),
        (["export", "nowhere/at/all", "--to", "x"], "no folder nowhere/at/all"),
        (["export", "albert-base", "--to", "x"], "albert-base is a preset, a shape without weights"),
        (["export", "m", "--to", "x", "--as", "gguf"], "--as 'gguf'; allowed: hf"),
        (["convert", "nowhere", "--to", "x"], "no folder nowhere"),
        (["bench", "forward", "--model", "albert-bsae"], "unknown preset 'albert-bsae'"),
        (
            ["corpus", "inspect", "x", "--seed", "1" + 23 * "0"],
            "seed = 1" + 23 * "0" + " must be a whole number from 0",
        ),
        (["corpus", "inspect", "x", "--seed", "-1"], "seed = -1 must be a whole number from 0 to 2**63 - 1"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(words, sentence, tmp_path):
    with pytest.raises(UserError) as problem:
        run(*words)
    assert str(problem.value).startswith(sentence)
    assert not list(tmp_path.iterdir())


def test_the_program_itself_prints_that_line_and_exits_with_2():
    done = subprocess.run([sys.executable, "-m", "litebert", "info", "nope"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("litebert: 'nope' is no preset, recipe or folder")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_any_process_of_several_says_what_it_found_and_which_it_is(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setattr(sys, "argv", ["litebert", "info", "nope"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert capsys.readouterr().err.startswith("litebert (process 3): 'nope' is no preset, recipe or folder")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["predict", "here", "there.csv"], "predict runs in one process; start it without torchrun"),
        (["corpus", "build", "here"], "corpus runs in one process; start it without torchrun"),
        (
            ["ablate", "sharing"],
            "ablate runs in one process; start it without torchrun, several cells at a time by --devices",
        ),
    ],
)
def test_what_is_no_work_for_several_processes_is_refused_by_the_first(words, sentence, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["litebert", *words])
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, told in (("0", f"litebert: {sentence}\n"), ("1", "")):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(SystemExit, match="2"):
            main()
        assert capsys.readouterr().err == told


def test_set_does_not_change_a_folder(small, tmp_path):
    Model(network=build(small())).save(tmp_path)
    with pytest.raises(UserError, match="a folder's model is what it is"):
        run("info", str(tmp_path), "--set", "model.layers=3")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_bench_memory_says_that_it_needs_a_gpu():
    with pytest.raises(UserError, match="measures a CUDA device and there is none here"):
        run("bench", "memory")


def test_info_refuses_a_folder_that_does_not_load(small, tmp_path):
    from safetensors.torch import load_file, save_file

    Model(network=build(small())).save(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors") | {"encoder.pooler.weight": torch.zeros(3, 3)}
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"encoder\.pooler\.weight is \[3, 3\] and should be \[32, 32\]"):
        run("info", str(tmp_path))


def test_info_takes_shapes_that_no_head_fits(small):
    facts = as_json("info", "bert-base", "--set", "model.embedding_size=128")
    assert "backbone_and_mlm_head" not in facts["parameters"]
    short = as_json("info", "albert-tiny", "--set", "model.positions=32", "--fit", "4GiB")
    assert [row["length"] for row in short["rows"]] == [32]


def test_version():
    import litebert

    assert run("--version").stdout.strip() == f"litebert {litebert.__version__}"


def test_a_table_shows_names_as_they_are(capsys):
    show.print_table("runs/m[lr]", ["[a]"], [["c[/lr] :smile:"]])
    said = capsys.readouterr().out
    assert all(each in said for each in ("runs/m[lr]", "[a]", "c[/lr] :smile:"))
