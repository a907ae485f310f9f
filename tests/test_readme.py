"""The README is true: every command and every snippet in it runs, in order, in one empty folder."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
QUICKER = {  # measurements, here only shown to run
    "bench forward": ["--repeats", "1", "--model", "albert-tiny"],
    "bench batches": ["--repeats", "1", "--length", "128", "--batch", "16"],
    "bench pretrain": shlex.split(
        "--no-peer --device cpu --model albert-tiny --length 64 --batch 4 --steps 1 --rounds 1 --workers 0"
    ),
    "bench serve": shlex.split("--model albert-tiny --texts 16 --rounds 1 --connections 4"),
    "bench hostile": shlex.split("--requests 60"),
    "ablate masking": shlex.split("--cells piece"),
    "compare litebert-base": shlex.split("--rounds 1 --length 16"),
    "finetune runs/demo": shlex.split("--set tune.steps=4"),
    "pretrain cpu-demo": shlex.split("--set run.steps=12 --set evaluate.every=0 --set evaluate.final_examples=32"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An empty folder, but for the data that a clone has."""
    made = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "src/litebert/data", made / "src/litebert/data")
    return made


def steps():
    for language, block in BLOCK.findall((ROOT / "README.md").read_text()):
        if language == "python":
            yield pytest.param("python", block, id="python")
        elif language == "console":
            for line in block.splitlines():
                assert line.startswith("$ litebert "), f"not a command: {line}"
                yield pytest.param("command", line[2:].split("  #")[0].split(" # ")[0], id=line[2:40])


def test_the_readme_has_commands_and_snippets():
    kinds = [step.values[0] for step in steps()]
    assert kinds.count("command") >= 8
    assert kinds.count("python") >= 1


@pytest.mark.parametrize(("kind", "text"), list(steps()))
def test_it_runs_as_written(kind, text, folder):
    if kind == "python":
        done = subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True)
    else:
        words = shlex.split(text)[1:]
        if words[:2] in (["bench", "serve"], ["bench", "hostile"]):
            pytest.importorskip("fastapi")
        elif "bench" in words:
            pytest.importorskip("transformers")
        done = forked.run([*words, *QUICKER.get(" ".join(words[:2]), [])], folder)
    assert done.returncode == 0, done.stderr


def test_the_two_make_targets_it_names_exist():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert {"demo", "test"} <= set(named) <= set(targets)


def test_every_link_to_a_file_leads_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_size_table_is_what_the_demo_prints():
    from litebert.config import PRESETS
    from litebert.report.info import describe

    rows = re.findall(
        r"^\| ([a-z]+-[a-z]+) \|.*\| ([\d,]+) \| (\d+) MiB \|$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert len(rows) == 8
    for name, parameters, size in rows:
        facts = describe(name, PRESETS[name])
        assert facts["parameters"]["backbone_and_pooler"] == int(parameters.replace(",", ""))
        assert round(facts["bytes"]["bfloat16"] / 2**20) == int(size)
