"""`litebert demo`, `info`, `export` and `convert`."""

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from litebert.cli.show import Json, print_json, print_table, progress, size
from litebert.config import PRESETS, HeadConfig, ModelConfig, UserError
from litebert.files import meant
from litebert.recipe import apply_sets, load_recipe, recipe_names
from litebert.strict import neighbour

if TYPE_CHECKING:
    from litebert.infer.model import Model

To = Annotated[Path, typer.Option("--to", help="The folder to write.")]


def demo(
    steps: Annotated[int | None, typer.Option(help="Train so many steps instead of the recipe's.", min=10)] = None,
    tune_steps: Annotated[int, typer.Option(help="Fine-tune so many steps instead of an epoch.", min=0)] = 0,
    to: Annotated[Path | None, typer.Option("--to", help="Keep the fine-tuned model in this folder.")] = None,
    as_json: Json = False,
) -> None:
    """Three minutes on a laptop: text to a small pre-trained ALBERT; then the one that ships, fine-tuned."""
    from litebert.demo import FAMILY, run_demo
    from litebert.report.info import describe
    from litebert.train.stopping import Stopped

    facts = {name: describe(name, PRESETS[name]) for name in FAMILY}
    if not as_json:
        rows = []
        for name, fact in facts.items():
            config = PRESETS[name]
            rows.append(
                [
                    name,
                    str(config.layers),
                    str(config.hidden_size),
                    str(config.embedding_size),
                    config.sharing,
                    f"{fact['parameters']['backbone_and_pooler']:,}",
                    size(fact["bytes"]["bfloat16"]),
                ]
            )
        print_table("the family", ["model", "layers", "H", "E", "sharing", "parameters", "bfloat16"], rows)
    try:
        found = run_demo((lambda _: None) if as_json else typer.echo, steps, tune_steps, to)
    except Stopped as stopped:
        raise typer.Exit(128 + stopped.signum) from None
    if as_json:
        sizes = {name: fact["parameters"]["backbone_and_pooler"] for name, fact in facts.items()}
        print_json({"parameters": sizes} | found)
    else:
        typer.echo(how_to_serve(to))
        typer.echo("next: your own files, as in the README")


def how_to_serve(folder: Path | None) -> str:
    """The command, as this one was called."""
    from litebert.infer.model import SHIPPED

    line = f"to try it in a browser: {sys.argv[0]} serve {shlex.quote(str(folder or SHIPPED))}"
    needs = "" if find_spec("fastapi") else "  (the server's packages first: pip install 'litebert[serve]')"
    return line + needs


def info(
    name: Annotated[str | None, typer.Argument(help="A preset, a recipe or a model's folder.")] = None,
    table: Annotated[str | None, typer.Option(help="A paper's size table: sizes, embedding or sharing.")] = None,
    fit: Annotated[str | None, typer.Option(help="A card's memory: print the largest training batches.")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="Change a setting: model.layers=6.")] = None,
    as_json: Json = False,
) -> None:
    """Parameters, bytes, FLOPs, the sharing plan and training memory of a model."""
    if table is not None:
        if name is not None or fit is not None or sets:
            raise UserError("--table prints a paper's table and takes no model, --fit or --set")
        _paper_table(table, as_json)
        return
    if name is None:
        raise UserError(
            f"say what: a preset ({', '.join(PRESETS)}), a recipe ({', '.join(recipe_names())}) or a folder"
        )
    config, heads = find_config(name, sets or [])
    if fit is not None:
        _fit(name, config, fit, as_json)
    else:
        _describe(name, config, heads, as_json)


def find_config(name: str, sets: list[str]) -> tuple[ModelConfig, tuple[HeadConfig, ...]]:
    from litebert.infer.model import SHIPPED, find

    if Path(name).is_dir() or name == SHIPPED:
        from litebert.model.weights import load_network

        if sets:
            raise UserError("--set changes a preset or a recipe; a folder's model is what it is")
        network, _ = load_network(find(name))
        return network.config, network.head_configs
    if name in PRESETS:
        return apply_sets({"model": {"preset": name}}, sets).model, ()
    if name.endswith(".toml") or any(name in (known, known.split("/")[1]) for known in recipe_names()):
        return load_recipe(name, sets).model, ()
    near = meant(name) or neighbour(name, [*PRESETS, SHIPPED, *recipe_names()])
    raise UserError(f"{name!r} is no preset, recipe or folder{near}")


def _describe(name: str, config: ModelConfig, heads: tuple[HeadConfig, ...], as_json: bool) -> None:
    from litebert.model.memory import step_memory
    from litebert.report.info import describe, draw_plan

    facts = describe(name, config, heads)
    lengths = [length for length in (128, 512) if length <= config.positions] or [config.positions]
    memory = {
        str(length): {str(batch): step_memory(config, batch, length).total for batch in (8, 32, 128)}
        for length in lengths
    }
    facts["training_memory_bytes"] = memory
    if as_json:
        print_json(facts)
        return
    parameters = facts["parameters"]
    rows = [[part, f"{n:,}"] for part, n in parameters["parts"].items()]
    rows += [
        ["backbone", f"{parameters['backbone']:,}"],
        ["backbone and pooler", f"{parameters['backbone_and_pooler']:,}"],
    ]
    for key, label in (
        ("backbone_and_mlm_head", "backbone and masked-LM head"),
        ("with_mlm_and_pair_heads", "with pooler and both heads"),
    ):
        if key in parameters:
            rows.append([label, f"{parameters[key]:,}"])
    if heads:
        rows.append(["all, heads included", f"{parameters['total']:,}"])
    print_table(f"{name}: parameters", ["part", "parameters"], rows)
    typer.echo(f"on disk: {size(facts['bytes']['float32'])} in float32, {size(facts['bytes']['bfloat16'])} in bfloat16")
    for length, flops in facts["flops_per_piece"].items():
        typer.echo(f"forward, a piece at length {length}: {flops / 1e6:,.1f} MFLOP")
    typer.echo(f"the plan, depth {config.depth}:\n{draw_plan(config)}")
    columns = ["length", *(f"batch {batch}" for batch in (8, 32, 128))]
    rows = [[length, *(size(n) for n in row.values())] for length, row in memory.items()]
    print_table("training memory, estimated", columns, rows)


def _fit(name: str, config: ModelConfig, fit: str, as_json: bool) -> None:
    from litebert.model.cost import pretraining_heads
    from litebert.model.memory import CONTEXT, fit_table, parse_bytes

    budget = parse_bytes(fit)
    rows = fit_table(config, budget)
    if as_json:
        print_json({"name": name, "budget_bytes": budget, "context_bytes": CONTEXT, "rows": rows})
        return
    print_table(
        f"{name}: largest training batch in {fit}",
        ["length", "batch", "allocated"],
        [[str(r["length"]), str(r["batch"]), size(r["bytes"]) if r["batch"] else "does not fit"] for r in rows],
    )
    heads = " and ".join(head.kind for head in pretraining_heads(config)) or "the encoder"
    typer.echo(
        f"one step of {heads}: compiled, bf16 over fp32 master weights, no activation checkpointing; "
        f"{size(CONTEXT)} are left for the process itself"
    )


def _paper_table(table: str, as_json: bool) -> None:
    from dataclasses import asdict

    from litebert.report.info import paper_table

    rows = paper_table(table)
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    print_table(
        f"ALBERT paper, {table}",
        ["model", "sharing", "E", "paper", "ours", "", "why"],
        [
            [r.model, r.sharing, str(r.embedding_size), r.printed, f"{r.ours:,}", "=" if r.agrees else "differs", r.why]
            for r in rows
        ],
    )
    typer.echo("counted as the paper does: backbone, with the pooler where weights are shared, 30,000 pieces")


def export(
    model: Annotated[str, typer.Argument(help="A model's folder or hub name.")],
    to: To,
    kind: Annotated[
        str, typer.Option("--as", help="hf: a folder that transformers loads; onnx: one that onnxruntime runs.")
    ] = "hf",
    int8: Annotated[bool, typer.Option("--int8", help="onnx: weights and products in 8 bits.")] = False,
    check: Annotated[
        Path | None, typer.Option(metavar="DATA", help="onnx: score model and file on this labelled file or folder.")
    ] = None,
    task: Annotated[str, typer.Option(help="With --check: the benchmark whose folder that is.")] = "",
    as_json: Json = False,
) -> None:
    """Write a model for other software."""
    if kind not in ("hf", "onnx"):
        raise UserError(f"--as {kind!r}; allowed: hf, onnx")
    if kind == "onnx":
        _export_onnx(model, to, int8, check, task, as_json)
        return
    if int8 or check is not None or task:
        raise UserError("--int8, --check and --task are for --as onnx")
    from litebert.export.hf import export_hf
    from litebert.infer.model import load

    notes = export_hf(load(model), to)
    if as_json:
        print_json({"folder": str(to), "notes": notes})
        return
    for note in notes:
        typer.echo(f"note: {note}")
    typer.echo(f"wrote {to}")


def _export_onnx(model: str, to: Path, int8: bool, check: Path | None, task: str, as_json: bool) -> None:
    from dataclasses import asdict

    from litebert.export.folder import export_onnx
    from litebert.infer.model import load

    if task and check is None:
        raise UserError(f"--task {task} says how to read what to check on; say where it is: --check FOLDER")
    loaded = load(model)
    written = export_onnx(loaded, to, int8)
    scores = _check_onnx(loaded, to, check, task) if check is not None else []
    if as_json:
        print_json(asdict(written) | ({"scores": scores} if check is not None else {}))
        return
    for row in scores:
        before, after = (f"{100 * row[side]:.2f}" for side in ("model", "file"))
        typer.echo(f"{row['name']} × 100 on {check}: {before} before, {after} after (± {100 * row['error']:.2f})")
    typer.echo(f"largest difference from PyTorch, of any output: {written.difference:.2g}")
    if written.passes:
        typer.echo("the number of passes is an input")
    typer.echo(f"wrote {to}: model.onnx of {size(written.bytes)}; try it with: python {to / 'run.py'} TEXT")


def _check_onnx(model: "Model", folder: Path, data: Path, task: str) -> list[dict[str, Any]]:
    """The scores of the model and of the file that was written, on the same examples."""
    from litebert.export.engine import run_by_onnx
    from litebert.infer.predict import asked
    from litebert.report.evaluation import evaluate, read_examples

    before, after = asked(model), asked(run_by_onnx(model, folder / "model.onnx"))
    wanted, examples = read_examples(before.task, data, task, "dev" if task else "", (), ())
    progress(f"scoring {len(examples):,} examples twice")
    found = [evaluate([each], examples, wanted, False).scores for each in (before, after)]
    pairs = zip(*found, strict=True)
    return [{"name": a.name, "model": a.value, "file": b.value, "error": a.error} for a, b in pairs]


def convert(
    folder: Annotated[Path, typer.Argument(help="A TF1 checkpoint of Google's, or a transformers folder.")],
    to: To,
    tokenizer: Annotated[Path | None, typer.Option(help="Its spiece.model or vocab.txt, if it lies elsewhere.")] = None,
    activation: Annotated[str | None, typer.Option(help="TF1: gelu or gelu_tanh, where the config is wrong.")] = None,
    head: Annotated[
        Literal["classify", "regress", "choice"] | None, typer.Option(help="TF1: what a bare output layer is.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Bring a checkpoint of other software into litebert's own folder."""
    if not folder.is_dir():
        raise UserError(f"no folder {folder}")
    from litebert.infer.model import Model, load
    from litebert.text.tokenizer import Tokenizer

    if any((folder / name).is_file() for name in ("albert_config.json", "bert_config.json")):
        from litebert.model.tf1 import convert_tf1

        model = Model(network=convert_tf1(folder, activation, head))
    else:
        if activation is not None or head is not None:
            raise UserError("--activation and --head are for TF1 checkpoints; this folder's config.json says its own")
        model = load(folder)
    if tokenizer is not None:
        model.tokenizer = Tokenizer.load(tokenizer)
    model.save(to)
    heads = [head.kind for head in model.network.head_configs]
    parameters = sum(p.numel() for p in model.network.parameters())
    if as_json:
        print_json({"folder": str(to), "heads": heads, "parameters": parameters})
        return
    typer.echo(f"wrote {to}: {model.config.family}, {parameters:,} parameters, heads: {', '.join(heads) or 'none'}")
