"""The house rules: which part may import which, every knob is read, files and functions stay small, no heavy start."""

import ast
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest

from litebert import config, recipe
from litebert.corpus.build import BuildOptions
from litebert.serve.limits import Limits

SOURCE = Path(config.__file__).parent
ABOVE = {  # a part -> the parts it may import, itself and the two at the top always
    "strict": set(),
    "files": set(),
    "config": set(),
    "recipe": {"config"},
    "text": {"config"},
    "model": {"config"},
    "corpus": {"config", "text"},
    "tasks": {"config", "text", "corpus"},
    "infer": {"config", "text", "model", "tasks"},
    "train": {"config", "recipe", "text", "model", "corpus", "tasks", "infer"},
    "report": {"config", "recipe", "text", "model", "corpus", "tasks", "infer", "train"},
    "ablate": {"config", "recipe", "text", "model", "corpus", "tasks", "infer", "train", "report"},
    "export": {"config", "text", "model", "corpus", "tasks", "infer", "train", "report"},
    "serve": {"config", "text", "model", "tasks", "infer", "export"},
    "bench": "all but cli",
    "demo": "all but cli",
    "cli": "all",
    "__init__": {"config", "infer"},
    "__main__": {"cli"},
}
OPTIONAL = {
    "transformers",
    "tensorflow",
    "huggingface_hub",
    "onnx",
    "onnxruntime",
    "fastapi",
    "pydantic",
    "starlette",
    "uvicorn",
    "prometheus_client",
    "ray",
    "datasets",
    "sklearn",
    "pyarrow",
    "matplotlib",
}


def modules():
    return sorted(SOURCE.rglob("*.py"))


def part_of(path):
    where = path.relative_to(SOURCE).parts
    return where[0].removesuffix(".py")


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node, node.module or ""


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_part_imports_only_what_stands_above_it(path):
    part = part_of(path)
    assert part in ABOVE, f"{part} has no place in the house; give it one"
    allowed = ABOVE[part]
    for _, name in imports(ast.parse(path.read_text())):
        if name.split(".")[0] != "litebert" or name == "litebert":
            continue
        other = name.split(".")[1]
        if allowed == "all" or (allowed == "all but cli" and other != "cli"):
            continue
        assert other in {part, "strict", "files"} or other in allowed, f"{path.name} imports {name}"


def test_config_needs_the_standard_library_only():
    for file in ("config.py", "recipe.py", "strict.py", "files.py"):
        for _, name in imports(ast.parse((SOURCE / file).read_text())):
            assert name.split(".")[0] in sys.stdlib_module_names or name in ("litebert.strict", "litebert.config"), name


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_optional_packages_are_imported_where_they_are_used(path):
    tree = ast.parse(path.read_text())
    for node in tree.body:
        for _, name in imports(node) if isinstance(node, ast.Import | ast.ImportFrom) else ():
            assert name.split(".")[0] not in OPTIONAL, f"{path.name} imports {name} at its top"


@pytest.mark.parametrize(
    "kind",
    [
        config.ModelConfig,
        config.HeadConfig,
        config.MaskConfig,
        config.ExampleConfig,
        config.DistillConfig,
        config.DialConfig,
        config.GuideConfig,
        recipe.Recipe,
        recipe.DataConfig,
        recipe.Phase,
        recipe.OptimizerConfig,
        recipe.RunConfig,
        recipe.EvaluateConfig,
        recipe.TuneRecipe,
        recipe.TaskConfig,
        recipe.TuneConfig,
        config.Reading,
        BuildOptions,
        Limits,
    ],
)
def test_every_knob_is_read(kind):
    read = set()
    for path in modules():
        if path.name not in ("config.py", "recipe.py"):
            read |= {
                node.attr
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
            }
    properties = {"depth", "projects"}  # `config.py` itself reads the fields behind these
    behind = {"projection"} if properties <= read else set()
    unread = {field.name for field in fields(kind)} - read - behind
    assert not unread, f"{kind.__name__} has knobs that nothing reads: {unread}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_files_and_functions_stay_small(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 60, f"{path.name}: {node.name}"
    assert ast.get_docstring(ast.parse(text)) or path.name == "__main__.py", "a file opens by saying what it is"


def test_help_answers_at_once_and_without_torch():
    code = """
import sys
sys.argv = ["litebert", "--help"]
from litebert.cli import main
try:
    main()
except SystemExit:
    pass
heavy = {"torch", "numpy", "sentencepiece", "tokenizers", "transformers"} & set(sys.modules)
assert not heavy, heavy
"""
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 1.0  # other tests run beside it
