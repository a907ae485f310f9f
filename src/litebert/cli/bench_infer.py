"""`litebert bench infer`."""

from typing import Annotated

import typer

from litebert.cli.show import Json, print_json, print_table, progress, size


def infer(
    model: Annotated[str, typer.Option(help="A preset.")] = "albert-base",
    beside: Annotated[str, typer.Option(help="The BERT whose int8 stands beside it.")] = "bert-base",
    rounds: Annotated[int, typer.Option(help="Rounds a shape.", min=1)] = 5,
    as_json: Json = False,
) -> None:
    """CPU inference in float32, bf16 and int8, beside onnxruntime's, and memory."""
    from litebert.bench.infer import bench_infer

    found = bench_infer(model, beside, rounds, say=progress)
    if as_json:
        print_json(found)
        return
    shapes = list(dict.fromkeys(row["shape"] for row in found["rows"]))
    times = {(row["side"], row["shape"]): row["ms"] for row in found["rows"]}
    sides = list(dict.fromkeys(row["side"] for row in found["rows"]))
    rows = [[side, *(f"{times[side, each]:.2f}" if (side, each) in times else "" for each in shapes)] for side in sides]
    print_table(f"{model}, {found['threads']} threads, {found['peer']}: milliseconds", ["", *shapes], rows)
    pairs = [
        ("fp32, our time by theirs", "litebert fp32", "onnxruntime fp32", False),
        ("bf16, times as fast as their fp32", "litebert bf16", "onnxruntime fp32", True),
        ("int8, times as fast as their int8", "litebert int8", "onnxruntime int8", True),
        (f"int8, times as fast as {beside}'s", "litebert int8", f"onnxruntime int8, {beside}", True),
    ]
    rows = []
    for what, ours, theirs, faster in pairs:
        if ours not in sides:
            continue
        ratios = [times[ours, each] / times[theirs, each] for each in shapes]
        rows.append([what, *(f"{1 / ratio if faster else ratio:.2f}" for ratio in ratios)])
    ragged = shapes[-1]
    for kind in (each.removeprefix("litebert ") for each in sides if f"{each}, padded" in sides):
        gain = times[f"litebert {kind}, padded", ragged] / times[f"litebert {kind}", ragged]
        rows.append([f"{kind}, times as fast as padding", "", "", "", f"{gain:.2f}"])
    print_table("", ["", *shapes], rows)
    typer.echo(f"an int8 model adds {size(found['memory_int8_bytes'])} to the process")
    typer.echo(f"matrix products here: {found['matmul_gflops']:.0f} GFLOP/s in float32")
    if "litebert bf16" not in sides:
        typer.echo("this CPU has no bf16")
    if not found["whole_sums"]:
        typer.echo(
            "this CPU has no AVX512-VNNI: ours rounds weights to 63 steps, so that no sum is cut off; theirs to 127"
        )
