"""`litebert bench serve` and `litebert bench hostile`: a server under load, and under attack."""

from typing import Annotated

import typer

from litebert.cli.bench import tell
from litebert.cli.show import Json, Precise, print_json, print_table


def serve(
    model: Annotated[
        str, typer.Option(help="A model that classifies, or a preset: that with fresh weights.")
    ] = "albert-base",
    connections: Annotated[int, typer.Option(help="That ask at once.", min=1)] = 64,
    texts: Annotated[int, typer.Option(help="Asked in a round.", min=1)] = 256,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    pieces: Annotated[int | None, typer.Option(help="As for `litebert serve`.")] = None,
    precision: Precise = None,
    as_json: Json = False,
) -> None:
    """Texts a second over HTTP beside the same model called directly, in one run."""
    from litebert.bench.serve import bench_serve

    words = ["--pieces", str(pieces)] if pieces is not None else []
    found = bench_serve(model, connections, texts, rounds, precision=precision, words=words, say=tell)
    if as_json:
        print_json(found)
        return
    rows = [[f"directly, batches of {found['best_batch']}", f"{found['direct_texts_per_second']:.2f}", "", "", ""]]
    latency = [f"{found['p50_ms']:.0f}", f"{found['p99_ms']:.0f}", f"{100 * found['error_rate']:.2f} %"]
    rows.append([f"served to {connections} connections", f"{found['served_texts_per_second']:.2f}", *latency])
    title = f"{model}, {texts} texts of 8 to 128 pieces, median of {rounds}, {found['threads']} threads"
    print_table(title, ["", "texts a second", "p50, ms", "p99, ms", "errors"], rows)
    least, most = min(found["ratios"]), max(found["ratios"])
    typer.echo(f"the server reaches {found['ratio']:.3f} of the direct rate ({least:.3f} to {most:.3f})")


def hostile(
    model: Annotated[str, typer.Argument(help="The model to serve; a small one will do.")],
    requests: Annotated[int, typer.Option(min=1)] = 10_000,
    connections: Annotated[int, typer.Option(help="That send at once.", min=1)] = 16,
    seed: Annotated[int, typer.Option(help="Decides what is sent.")] = 0,
    as_json: Json = False,
) -> None:
    """Malformed and hostile requests: what each kind was answered with, and whether the server is well after them."""
    from litebert.bench.hostile import bench_hostile

    found = bench_hostile(model, requests, connections, seed, say=tell)
    if as_json:
        print_json(found)
        return
    columns = list(found["statuses"])
    rows = [[kind, *(str(row.get(status, "")) for status in columns)] for kind, row in found["kinds"].items()]
    rows.append(["all", *(str(found["statuses"][status]) for status in columns)])
    print_table(f"{requests:,} requests in {found['seconds']:.0f} s", ["", *columns], rows)
    typer.echo("0: closed without an answer, as what is not HTTP may be")
    typer.echo(
        f"server errors but 503: {found['server_errors']}; stuck: {found['stuck']}; "
        f"left inside: {found['left_inside']}; answers as before: {'yes' if found['answers_as_before'] else 'no'}"
    )
