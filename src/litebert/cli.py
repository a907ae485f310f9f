"""Parse, call, print. The only place that exits: 0, or 2 with one line for a mistake of the user's.

torch is imported inside the commands, so `litebert --help` stays instant.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from litebert.config import HeadConfig, ModelConfig, UserError

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(
    help="The lite BERT family: ALBERT, BERT, RoBERTa and DistilBERT as settings of one machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench = typer.Typer(help="Measure litebert and its peers, side by side in one run.", no_args_is_help=True)
app.add_typer(bench, name="bench")

Json = Annotated[bool, typer.Option("--json", help="Print plain JSON.")]
To = Annotated[Path, typer.Option("--to", help="The folder to write.")]


def main() -> None:
    try:
        app()
    except UserError as problem:
        typer.echo(f"litebert: {problem}", err=True)
        sys.exit(2)


def version(wanted: bool) -> None:
    if wanted:
        from litebert import __version__

        typer.echo(f"litebert {__version__}")
        raise typer.Exit


@app.callback()
def start(
    show_version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The lite BERT family: ALBERT, BERT, RoBERTa and DistilBERT as settings of one machine."""


@app.command()
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
        from litebert.config import PRESETS, recipe_names

        raise UserError(f"say what: a preset ({', '.join(PRESETS)}), a recipe ({', '.join(recipe_names())}) or a folder")
    config, heads = _find_config(name, sets or [])
    if fit is not None:
        _fit(name, config, fit, as_json)
    else:
        _describe(name, config, heads, as_json)


def _find_config(name: str, sets: list[str]) -> tuple[ModelConfig, tuple[HeadConfig, ...]]:
    from litebert.config import PRESETS, apply_sets, load_recipe, recipe_names

    if Path(name).is_dir():
        from litebert.model.weights import read_folder

        if sets:
            raise UserError("--set changes a preset or a recipe; a folder's model is what it is")
        config, heads, _ = read_folder(Path(name))
        return config, heads
    if name in PRESETS:
        return apply_sets({"model": {"preset": name}}, sets).model, ()
    if name.endswith(".toml") or any(name in (known, known.split("/")[1]) for known in recipe_names()):
        return load_recipe(name, sets).model, ()
    from litebert.config import neighbour

    raise UserError(f"{name!r} is no preset, recipe or folder{neighbour(name, [*PRESETS, *recipe_names()])}")


def _describe(name: str, config: ModelConfig, heads: tuple[HeadConfig, ...], as_json: bool) -> None:
    from litebert.report.info import describe, draw_plan
    from litebert.report.memory import step_memory

    facts = describe(name, config, heads)
    lengths = [length for length in (128, 512) if length <= config.positions] or [config.positions]
    memory = {
        str(length): {str(batch): step_memory(config, batch, length).total for batch in (8, 32, 128)} for length in lengths
    }
    facts["training_memory_bytes"] = memory
    if as_json:
        _print_json(facts)
        return
    parameters = facts["parameters"]
    rows = [[part, f"{n:,}"] for part, n in parameters["parts"].items()]
    rows += [["backbone", f"{parameters['backbone']:,}"], ["backbone and pooler", f"{parameters['backbone_and_pooler']:,}"]]
    for key, label in (
        ("backbone_and_mlm_head", "backbone and masked-LM head"),
        ("with_mlm_and_pair_heads", "with pooler and both heads"),
    ):
        if key in parameters:
            rows.append([label, f"{parameters[key]:,}"])
    if heads:
        rows.append(["all, heads included", f"{parameters['total']:,}"])
    _print_table(f"{name}: parameters", ["part", "parameters"], rows)
    typer.echo(
        f"on disk: {_size(facts['bytes']['float32'])} in float32, {_size(facts['bytes']['bfloat16'])} in bfloat16"
    )
    for length, flops in facts["flops_per_piece"].items():
        typer.echo(f"forward, a piece at length {length}: {flops / 1e6:,.1f} MFLOP")
    typer.echo(f"the plan, depth {config.depth}:\n{draw_plan(config)}")
    columns = ["length", *(f"batch {batch}" for batch in (8, 32, 128))]
    rows = [[length, *(_size(n) for n in row.values())] for length, row in memory.items()]
    _print_table("training memory, estimated", columns, rows)


def _fit(name: str, config: ModelConfig, fit: str, as_json: bool) -> None:
    from litebert.report.memory import CONTEXT, fit_table, parse_bytes

    budget = parse_bytes(fit)
    rows = fit_table(config, budget)
    if as_json:
        _print_json({"name": name, "budget_bytes": budget, "context_bytes": CONTEXT, "rows": rows})
        return
    _print_table(
        f"{name}: largest training batch in {fit}",
        ["length", "batch", "allocated"],
        [[str(r["length"]), str(r["batch"]), _size(r["bytes"]) if r["batch"] else "does not fit"] for r in rows],
    )
    typer.echo(
        "one masked-LM and pair step: AdamW, bf16 autocast, fp32 master weights, no activation checkpointing; "
        f"{_size(CONTEXT)} are left for the process itself"
    )


def _paper_table(table: str, as_json: bool) -> None:
    from dataclasses import asdict

    from litebert.report.info import paper_table

    rows = paper_table(table)
    if as_json:
        _print_json([asdict(row) for row in rows])
        return
    _print_table(
        f"ALBERT paper, {table}",
        ["model", "sharing", "E", "paper", "ours", "", "why"],
        [
            [r.model, r.sharing, str(r.embedding_size), r.printed, f"{r.ours:,}", "=" if r.agrees else "differs", r.why]
            for r in rows
        ],
    )
    typer.echo("counted as the paper does: backbone, with the pooler where weights are shared, 30,000 pieces")


@app.command()
def demo(as_json: Json = False) -> None:
    """The family built, counted and checked on this machine."""
    from litebert.config import PRESETS
    from litebert.demo import FAMILY, run_demo
    from litebert.report.info import describe

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
                    _size(fact["bytes"]["bfloat16"]),
                ]
            )
        _print_table("the family", ["model", "layers", "H", "E", "sharing", "parameters", "bfloat16"], rows)
    found = run_demo((lambda _: None) if as_json else typer.echo)
    if as_json:
        sizes = {name: fact["parameters"]["backbone_and_pooler"] for name, fact in facts.items()}
        _print_json({"parameters": sizes, "largest_differences": found})
    else:
        typer.echo("all of it agrees. Next: litebert info albert-base --fit 12GiB")


@app.command()
def export(
    model: Annotated[str, typer.Argument(help="A model's folder or hub name.")],
    to: To,
    kind: Annotated[str, typer.Option("--as", help="hf: a folder that transformers loads.")] = "hf",
    as_json: Json = False,
) -> None:
    """Write a model for other software."""
    if kind != "hf":
        raise UserError(f"--as {kind!r}; allowed: hf")
    from litebert.export.hf import export_hf
    from litebert.infer.model import load

    notes = export_hf(load(model), to)
    if as_json:
        _print_json({"folder": str(to), "notes": notes})
        return
    for note in notes:
        typer.echo(f"note: {note}")
    typer.echo(f"wrote {to}")


@app.command()
def convert(
    folder: Annotated[Path, typer.Argument(help="A TF1 checkpoint of Google's, or a transformers folder.")],
    to: To,
    tokenizer: Annotated[Path | None, typer.Option(help="Its spiece.model or vocab.txt, if it lies elsewhere.")] = None,
    activation: Annotated[str | None, typer.Option(help="TF1: gelu or gelu_tanh, where the config is wrong.")] = None,
    as_json: Json = False,
) -> None:
    """Bring a checkpoint of other software into litebert's own folder."""
    if not folder.is_dir():
        raise UserError(f"no folder {folder}")
    from litebert.infer.model import Model, load
    from litebert.text.tokenizer import Tokenizer

    if any((folder / name).is_file() for name in ("albert_config.json", "bert_config.json")):
        from litebert.model.tf1 import convert_tf1

        model = Model(network=convert_tf1(folder, activation))
    else:
        if activation is not None:
            raise UserError("--activation is for TF1 checkpoints; this folder's config.json says its own")
        model = load(folder)
    if tokenizer is not None:
        model.tokenizer = Tokenizer.load(tokenizer)
    model.save(to)
    heads = [head.kind for head in model.network.head_configs]
    parameters = sum(p.numel() for p in model.network.parameters())
    if as_json:
        _print_json({"folder": str(to), "heads": heads, "parameters": parameters})
        return
    typer.echo(f"wrote {to}: {model.config.family}, {parameters:,} parameters, heads: {', '.join(heads) or 'none'}")


@bench.command()
def forward(
    model: Annotated[str, typer.Option(help="A preset.")] = "albert-base",
    repeats: Annotated[int, typer.Option(help="Rounds a shape.", min=1)] = 15,
    as_json: Json = False,
) -> None:
    """CPU forward pass: milliseconds beside transformers, and the ratio."""
    from litebert.bench.forward import bench_forward

    found = bench_forward(model, repeats, say=_progress)
    if as_json:
        _print_json(found)
        return
    rows = [
        [
            row["shape"],
            f"{row['transformers_ms']:.1f}",
            f"{row['litebert_ms']:.1f}",
            f"{row['ratio']:.2f}",
            f"{row['litebert_gflops']:.0f}",
            f"{row['largest_difference']:.1e}",
        ]
        for row in found["rows"]
    ]
    columns = ["(batch, length)", f"{found['peer']}, ms", "litebert, ms", "ratio", "litebert GFLOP/s", "difference"]
    _print_table(f"{model}, float32, {found['threads']} threads, torch {found['torch']}", columns, rows)
    typer.echo(f"a plain float32 matrix product here: {found['matmul_gflops']:.0f} GFLOP/s")


@bench.command()
def memory(
    fit: Annotated[str, typer.Option(help="The card's memory, as for `litebert info --fit`.")] = "12GiB",
    as_json: Json = False,
) -> None:
    """GPU memory of a training step: what `info --fit` estimates beside what is allocated."""
    from litebert.bench.memory import bench_memory
    from litebert.report.memory import parse_bytes

    found = bench_memory(parse_bytes(fit), say=_progress)
    if as_json:
        _print_json(found)
        return
    rows = [
        [
            row["model"],
            str(row["length"]),
            str(row["batch"]),
            _size(row["estimate_bytes"]),
            _size(row["peak_bytes"]),
            f"{row['ratio']:.3f}",
        ]
        for row in found["rows"]
    ]
    _print_table(
        f"{found['device']}, torch {found['torch']}", ["model", "length", "batch", "estimate", "peak", "ratio"], rows
    )
    typer.echo(f"outside PyTorch's allocator: {_size(found['outside_allocator_bytes'])}")


def _progress(what: str) -> None:
    if sys.stderr.isatty():
        typer.echo(f"… {what}", err=True)


def _size(count: int) -> str:
    amount, unit = (count / 2**30, "GiB") if count >= 2**30 else (count / 2**20, "MiB")
    return f"{amount:.2f} {unit}" if amount < 100 else f"{amount:.0f} {unit}"


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2))


def _print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table: Table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 or column == "why" else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 140).print(table)
