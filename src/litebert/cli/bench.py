"""`litebert bench …`: this project and its peers, side by side in one run."""

from pathlib import Path
from typing import Annotated, Any

import typer

from litebert.cli.show import Json, print_json, print_table, progress, size, stoppable

app = typer.Typer(help="Measure litebert and its peers, side by side in one run.", no_args_is_help=True)


@app.command()
def forward(
    model: Annotated[str, typer.Option(help="A preset.")] = "albert-base",
    repeats: Annotated[int, typer.Option(help="Rounds a shape.", min=1)] = 15,
    as_json: Json = False,
) -> None:
    """CPU forward pass: milliseconds beside transformers, and the ratio."""
    from litebert.bench.forward import bench_forward

    found = bench_forward(model, repeats, say=progress)
    if as_json:
        print_json(found)
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
    print_table(f"{model}, float32, {found['threads']} threads, torch {found['torch']}", columns, rows)
    typer.echo(f"a plain float32 matrix product here: {found['matmul_gflops']:.0f} GFLOP/s")


@app.command()
def memory(
    fit: Annotated[str, typer.Option(help="The card's memory, as for `litebert info --fit`.")] = "12GiB",
    as_json: Json = False,
) -> None:
    """GPU memory of a training step: what `info --fit` estimates beside what is allocated."""
    from litebert.bench.memory import bench_memory
    from litebert.model.memory import parse_bytes

    found = bench_memory(parse_bytes(fit), say=progress)
    if as_json:
        print_json(found)
        return
    rows = [
        [
            row["model"],
            str(row["length"]),
            str(row["batch"]),
            size(row["estimate_bytes"]),
            size(row["peak_bytes"]),
            f"{row['ratio']:.3f}",
        ]
        for row in found["rows"]
    ]
    print_table(
        f"{found['device']}, torch {found['torch']}", ["model", "length", "batch", "estimate", "peak", "ratio"], rows
    )
    typer.echo(f"outside PyTorch's allocator: {size(found['outside_allocator_bytes'])}")


@app.command()
def tokenize(
    tokenizer: Annotated[Path, typer.Argument(help="A tokenizer's file or folder.")],
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT…", help="Files, folders or patterns of text.")],
    texts: Annotated[int, typer.Option(help="How many paragraphs, from the start.", min=1)] = 10_000,
    repeats: Annotated[int, typer.Option(help="Rounds.", min=1)] = 3,
    as_json: Json = False,
) -> None:
    """Text to ids on one core: megabytes a second beside sentencepiece and transformers, and whose ids agree."""
    from litebert.bench.tokenize import bench_tokenize
    from litebert.corpus.read import Bad, find_sources, read_documents

    found = bench_tokenize(tokenizer, read_documents(find_sources(inputs), "text", Bad()), texts, repeats, say=progress)
    if as_json:
        print_json(found)
        return
    rows = [
        [
            row["way"],
            f"{row['mb_per_second']:.1f}",
            f"{row['time_against_first']:.2f}",
            f"{row['texts_with_other_ids'] * found['texts']:.0f}",
        ]
        for row in found["rows"]
    ]
    title = f"{found['kind']}, {found['texts']:,} paragraphs, {found['bytes'] / 1e6:.1f} MB, one core"
    print_table(title, ["way", "MB/s", "time, first = 1", "texts with other ids"], rows)
    if "note" in found:
        typer.echo(found["note"])


@app.command()
def corpus(
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT…", help="Files, folders or patterns of text.")],
    tokenizer: Annotated[Path, typer.Option(help="A unigram tokenizer: its folder or file.")],
    workers: Annotated[int, typer.Option(help="Processes, and threads of the floor.", min=1)] = 2,
    as_json: Json = False,
) -> None:
    """Building shards beside sentencepiece alone on text that is split and normalised."""
    from litebert.bench.corpus import bench_corpus

    found = bench_corpus(inputs, tokenizer, workers, say=progress)
    if as_json:
        print_json(found)
        return
    print_table(
        f"{found['characters'] / 1e6:,.0f} M characters, {found['pieces']:,} pieces, {workers} workers",
        ["litebert, s", "sentencepiece encode alone, s", "ratio", "most memory of a worker"],
        [
            [
                f"{found['litebert_seconds']:.1f}",
                f"{found['sentencepiece_seconds']:.1f}",
                f"{found['ratio']:.2f}",
                size(found["peak_resident_bytes_of_a_process"]),
            ]
        ],
    )


@app.command()
def batches(
    folder: Annotated[Path, typer.Argument(help="A folder of shards.")],
    length: Annotated[int, typer.Option(help="Pieces an example.")] = 512,
    batch: Annotated[int, typer.Option(help="Examples a batch.", min=1)] = 256,
    repeats: Annotated[int, typer.Option(help="Rounds.", min=1)] = 10,
    workers: Annotated[int, typer.Option(help="Processes of the loader.", min=1)] = 2,
    as_json: Json = False,
) -> None:
    """Masked batches: pieces a second beside transformers' whole-word collator."""
    from litebert.bench.batches import bench_batches

    found = bench_batches(folder, length, batch, repeats, workers, say=progress)
    if as_json:
        print_json(found)
        return
    rows = [
        [f"{found['peer']}, whole-word collator, one core", f"{found['transformers_pieces_per_second_and_core']:,.0f}"],
        ["litebert, one core", f"{found['litebert_pieces_per_second_and_core']:,.0f}"],
        [f"litebert, the loader with {workers} processes", f"{found['loader_pieces_per_second']:,.0f}"],
    ]
    print_table(f"length {length}, batch {batch}", ["", "pieces a second"], rows)
    typer.echo(f"one core against one core: {found['ratio']:.1f} times")


@app.command()
def sentences(
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT…", help="Files, folders or patterns of text.")],
    texts: Annotated[int, typer.Option(help="Paragraphs to measure on.", min=1)] = 20000,
    as_json: Json = False,
) -> None:
    """Sentence splitters: megabytes a second, what they lose, and German."""
    from litebert.bench.sentences import bench_sentences
    from litebert.corpus.read import Bad, find_sources, read_documents

    found = bench_sentences(read_documents(find_sources(inputs), "text", Bad()), texts, say=progress)
    if as_json:
        print_json(found)
        return
    rows = [
        [
            r["splitter"],
            f"{r['mb_per_second']:.1f}",
            str(r["texts_not_lossless"]),
            f"{r['german_right']} of {found['german_lines']}",
        ]
        for r in found["rows"]
    ]
    columns = ["splitter", "MB/s, one core", "texts not lossless", "German lines right"]
    print_table(f"{found['texts']:,} paragraphs", columns, rows)


@app.command()
def pretrain(
    shards: Annotated[Path, typer.Argument(help="A folder of shards.")],
    models: Annotated[list[str] | None, typer.Option("--model", help="A preset; may be given several times.")] = None,
    length: Annotated[int, typer.Option(help="Pieces an example.")] = 512,
    batch: Annotated[list[int] | None, typer.Option(help="Batch sizes to try; may be given several times.")] = None,
    steps: Annotated[int, typer.Option(help="Steps a round.", min=1)] = 8,
    rounds: Annotated[int, typer.Option(help="Rounds.", min=1)] = 3,
    workers: Annotated[int, typer.Option(help="Processes that make batches.", min=0)] = 4,
    peer: Annotated[bool, typer.Option(help="Measure transformers beside it.")] = True,
    profile: Annotated[bool, typer.Option("--profile", help="Where the device's time goes, by kernel.")] = False,
    passes: Annotated[int, typer.Option(help="Layers that run; 0: the preset's.", min=0)] = 0,
    capture: Annotated[bool, typer.Option(help="Record short steps as CUDA graphs.")] = True,
    device: Annotated[str, typer.Option(help="cuda, or cpu to see it run.")] = "cuda",
    as_json: Json = False,
) -> None:
    """Pieces a second of a whole pre-training step beside transformers, eager and compiled."""
    from litebert.bench.pretrain import BATCHES, bench_pretrain

    found = bench_pretrain(
        str(shards),
        models or list(BATCHES),
        length,
        steps,
        rounds,
        batch or (),
        peer,
        workers,
        device,
        profile,
        passes,
        capture,
        say=tell,
    )
    if as_json:
        print_json(found)
    else:
        _print_pretrain(found)


def _print_pretrain(found: dict[str, Any]) -> None:
    rows = [
        [
            row["model"],
            row["side"],
            str(row["batch"]),
            f"{row['pieces_per_second']:,.0f}",
            f"{row['litebert_is_times']:.2f}",
            f"{row['share_of_peak']:.3f}",
            f"{row['matmul_flops'] / 1e12:.0f}",
        ]
        for row in found["rows"]
    ]
    columns = [
        "model",
        "side",
        "best batch",
        "pieces a second",
        "litebert is × this",
        "share of peak",
        "matmul TFLOP/s",
    ]
    print_table(f"{found['device']}, torch {found['torch']}, length {found['length']}", columns, rows)
    typer.echo(f"FLOPs of a step: {found['flops']}")
    for model, kernels in found["kernels"].items():
        table = [[each["kernel"][:90], f"{100 * each['share']:.1f} %", f"{each['calls']:.0f}"] for each in kernels]
        print_table(f"{model}: where the time goes", ["kernel", "share", "calls a step"], table)


@app.command()
def finetune(
    model: Annotated[str, typer.Argument(help="A model's folder or hub name: a BERT, for both sides.")],
    data: Annotated[str, typer.Option(help="The folder that holds glue/ and squad/.")],
    task: Annotated[list[str] | None, typer.Option(help="May be given several times.")] = None,
    seeds: Annotated[int, typer.Option(help="Runs a side.", min=1)] = 3,
    rate: Annotated[float, typer.Option(help="The learning rate of both.")] = 5e-5,
    steps: Annotated[int, typer.Option(help="Only so many, to see it run; 0: the whole.", min=0)] = 0,
    precision: Annotated[str, typer.Option(help="Of both sides: bf16 or fp32; auto: bf16 on a GPU.")] = "auto",
    device: Annotated[str, typer.Option(help="cuda or cpu; auto takes a GPU where there is one.")] = "auto",
    as_json: Json = False,
) -> None:
    """Fine-tuning beside transformers' Trainer: seconds and scores."""
    from litebert.bench.finetune import bench_finetune

    chosen = task or ["rte", "mrpc", "stsb", "cola", "sst2"]
    found = bench_finetune(model, data, chosen, seeds, rate, steps=steps, device=device, precision=precision, say=tell)
    if as_json:
        print_json(found)
        return
    rows = [
        [
            row["task"],
            f"{row['transformers_seconds']:.1f}",
            f"{row['litebert_seconds']:.1f}",
            f"{row['time_ratio']:.2f}",
            row["metric"],
            f"{100 * row['transformers_score']:.2f}",
            f"{100 * row['litebert_score']:.2f}",
            f"{100 * row['error']:.2f}",
        ]
        for row in found["rows"]
    ]
    columns = ["task", "transformers, s", "litebert, s", "ratio", "metric", "transformers", "litebert", "error of dev"]
    print_table(f"{found['device']}, torch {found['torch']}, median of {seeds} seeds", columns, rows)


@app.command()
def scores(
    model: Annotated[str, typer.Argument(help="A pre-trained model.")],
    data: Annotated[Path, typer.Option(help="The folder that holds glue/, squad/ and race/.")],
    to: Annotated[Path, typer.Option("--to", help="A folder for what is finished: killed, it goes on from there.")],
    task: Annotated[list[str] | None, typer.Option(help="Only this one; may be given several times.")] = None,
    beside: Annotated[list[str] | None, typer.Option(help="Another model; may be given several times.")] = None,
    seeds: Annotated[int, typer.Option(help="Runs a cell; 0: five on small sets, one on large ones.", min=0)] = 0,
    rate: Annotated[
        list[float] | None,
        typer.Option(help="The learning rate of all; of several each has the one that is best on the dev set. [5e-5]"),
    ] = None,
    steps: Annotated[int, typer.Option(help="Only so many, to see it run; 0: the whole.", min=0)] = 0,
    precision: Annotated[str, typer.Option(help="bf16 or fp32; auto: bf16 on a GPU.")] = "auto",
    paper: Annotated[str, typer.Option(help="A row of the paper's table to print beside it: albert-base.")] = "",
    keep: Annotated[bool, typer.Option("--keep", help="Keep the fine-tuned models.")] = False,
    random: Annotated[bool, typer.Option(help="The same shape from random weights beside it.")] = True,
    device: Annotated[str, typer.Option(help="cuda or cpu; auto takes a GPU where there is one.")] = "auto",
    as_json: Json = False,
) -> None:
    """Every task there is: a model, the same from random weights, others, and the paper's figures."""
    from litebert.bench.scores import bench_scores
    from litebert.cli.train import Lines
    from litebert.recipe import TuneConfig
    from litebert.strict import parse

    rates = list(dict.fromkeys(rate or [5e-5]))
    tune = parse(TuneConfig, {"rate": rates[0], "steps": steps, "precision": precision})
    chosen = (task or (), beside or (), seeds, paper, device, keep, random, rates)
    with stoppable():
        found = bench_scores(model, data, to, tune, *chosen, say=Lines(quiet=False))
    if as_json:
        print_json(found)
        return
    rows = []
    for row in found["rows"]:
        told = [f"{100 * row[side]['median']:.2f} ± {100 * row[side]['spread']:.2f}" for side in found["sides"]]
        if len(rates) > 1:
            told = [f"{text} at {row['rates'][side]:g}" for text, side in zip(told, found["sides"], strict=True)]
        error = f"{100 * row[found['sides'][0]]['error']:.2f}"
        printed = "" if row["paper"] is None else f"{row['paper']}"
        rows.append([row["task"], row["metric"], str(row["seeds"]), *told, error, printed])
    columns = ["task", "metric", "seeds", *found["sides"], "error of dev"]
    columns.append(f"paper's {found['paper']}" if found["paper"] else "")
    print_table("median of the seeds ± their spread", columns, rows)


@app.command()
def squad2(
    model: Annotated[str, typer.Argument(help="A model that was taught SQuAD 1.1.")],
    data: Annotated[Path, typer.Option(help="SQuAD 2.0's dev file: its articles are split in three.")],
    to: Annotated[Path, typer.Option("--to", help="A folder for the parts and the run.")],
    epochs: Annotated[float, typer.Option(help="Over the first part.")] = 3.0,
    rate: Annotated[float, typer.Option(help="The learning rate.")] = 5e-5,
    seed: Annotated[int, typer.Option(help="Of the split.")] = 0,
    device: Annotated[str, typer.Option(help="cuda or cpu; auto takes a GPU where there is one.")] = "auto",
    as_json: Json = False,
) -> None:
    """Questions that may have no answer: F1 with and without the threshold, on articles that nothing has seen."""
    from litebert.bench.squad2 import bench_squad2
    from litebert.cli.train import Lines
    from litebert.recipe import TuneConfig

    tune = TuneConfig(epochs=epochs, rate=rate)
    with stoppable():
        found = bench_squad2(model, data, to, tune, seed=seed, device=device, say=Lines(quiet=False))
    if as_json:
        print_json(found)
        return
    rows = [
        [row["way"], *(f"{100 * row[name]['value']:.2f} ± {100 * row[name]['error']:.2f}" for name in ("f1", "em"))]
        for row in found["rows"]
    ]
    articles, questions = (", ".join(map(str, found[name])) for name in ("articles", "questions"))
    print_table(f"articles {articles}; questions {questions}", ["", "F1", "exact match"], rows)


def tell(line: str) -> None:
    """Progress of what takes minutes, terminal or not."""
    typer.echo(line, err=True)
