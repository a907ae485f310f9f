"""`litebert bench serve` and `litebert bench hostile`: a server under load, and under attack."""

from typing import Annotated

import typer

from litebert.cli.bench import app as bench
from litebert.cli.bench import tell
from litebert.cli.show import Json, print_json, print_table


@bench.command()
def serve(
    model: Annotated[str, typer.Option(help="A model that classifies, or a preset: that with fresh weights.")] = "albert-base",
    connections: Annotated[int, typer.Option(help="That ask at once.", min=1)] = 64,
    texts: Annotated[int, typer.Option(help="Asked in a round.", min=1)] = 256,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    pieces: Annotated[int | None, typer.Option(help="As for `litebert serve`.")] = None,
    as_json: Json = False,
) -> None:
    """Texts a second over HTTP beside the same model called directly, in one run."""
    from litebert.bench.serve import bench_serve

    words = ["--pieces", str(pieces)] if pieces is not None else []
    found = bench_serve(model, connections, texts, rounds, words=words, say=tell)
    if as_json:
        print_json(found)
        return
    rows = [[f"directly, batches of {found['best_batch']}", f"{found['direct_texts_per_second']:.2f}", "", "", ""]]
    latency = [f"{found['p50_ms']:.0f}", f"{found['p99_ms']:.0f}", f"{100 * found['error_rate']:.2f} %"]
    rows.append([f"served to {connections} connections", f"{found['served_texts_per_second']:.2f}", *latency])
    title = f"{model}, {texts} texts of 8 to 128 pieces, median of {rounds}, {found['threads']} threads"
    print_table(title, ["", "texts a second", "p50, ms", "p99, ms", "errors"], rows)
    typer.echo(f"the server reaches {found['ratio']:.3f} of the direct rate")
