"""Parse, call, print. The only place that exits: 0, 2 with one line for a mistake of the user's, or 1 with one line
where another process of the run is gone.

torch is imported inside the commands, so `litebert --help` stays instant.
"""

import os
import sys
from typing import Annotated

import typer

from litebert.cli import (
    ablate,
    answer,
    bench,
    bench_infer,
    compare,
    corpus,
    embed,
    evaluate,
    model,
    plot,
    predict,
    serve,
    stress,
    text,
    train,
    tune,
)
from litebert.strict import PeerError, SharedError, UserError

app = typer.Typer(
    help="The lite BERT family: ALBERT, BERT, RoBERTa and DistilBERT as settings of one machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    model.demo,
    model.info,
    train.pretrain,
    train.distill,
    ablate.ablate,
    tune.finetune,
    evaluate.evaluate,
    compare.compare,
    predict.predict,
    answer.fill,
    embed.embed,
    embed.probe,
    model.export,
    model.convert,
    serve.serve,
):
    app.command()(command)
app.add_typer(text.app, name="tokenizer")
app.add_typer(corpus.app, name="corpus")
app.add_typer(plot.app, name="plot")
for measure in (bench_infer.infer, stress.serve, stress.hostile):
    bench.app.command()(measure)
app.add_typer(bench.app, name="bench")


def main() -> None:
    try:
        app()
    except SharedError:
        sys.exit(2)
    except (UserError, PeerError) as problem:
        rank = os.environ.get("RANK", "0")  # torchrun's
        typer.echo(f"litebert{'' if rank == '0' else f' (process {rank})'}: {problem}", err=True)
        sys.exit(1 if isinstance(problem, PeerError) else 2)


def version(wanted: bool) -> None:
    if wanted:
        from litebert import __version__

        typer.echo(f"litebert {__version__}")
        raise typer.Exit


TOGETHER = ("pretrain", "distill", "finetune")  # what torchrun may start several times for one run


@app.callback()
def start(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The lite BERT family: ALBERT, BERT, RoBERTa and DistilBERT as settings of one machine."""
    name = context.invoked_subcommand
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and name not in TOGETHER:
        error = UserError if os.environ.get("RANK", "0") == "0" else SharedError
        more = ", several cells at a time by --devices" if name == "ablate" else ""
        raise error(f"{name} runs in one process; start it without torchrun{more}")
