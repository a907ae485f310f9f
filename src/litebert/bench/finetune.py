"""`litebert bench finetune`: fine-tuning beside `transformers`' Trainer, the same model, data, settings and seeds.

The Trainer is at its best: bf16 where ours is, grouped lengths, fused AdamW. Timed is what a user waits for once
model and rows are in memory: tokenizing and training. Both sides are scored by the same metrics on the same dev set.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.attention import sdpa_kernel

from litebert.bench.peer import transformers, wait
from litebert.config import Reading, UserError
from litebert.infer.model import load
from litebert.infer.predict import asked, listen
from litebert.recipe import TaskConfig, TuneConfig, TuneRecipe
from litebert.tasks.answers import decide, scores
from litebert.tasks.example import Example, Target, Task
from litebert.tasks.features import units
from litebert.tasks.read import benchmark, read_split
from litebert.tasks.taught import suited
from litebert.train.finetune import ANY_SHAPE, score, updates, work_of
from litebert.train.processes import Processes, pick_device
from litebert.train.run import Run
from litebert.train.seat import Seat, take_seat
from litebert.train.steps import take_steps
from litebert.train.trainee import resolve_precision

NEEDS = "accelerate"  # which the Trainer runs on
SETTINGS = {"squad": (2.0, 384)}  # epochs, length; other tasks: 3 epochs, 128


def bench_finetune(
    model: str,
    data: str,
    tasks: Sequence[str],
    seeds: int = 3,
    rate: float = 5e-5,
    batch: int = 32,
    steps: int = 0,  # only so many, to see it run
    device: str = "auto",
    precision: str = "auto",  # of both; auto: bf16 on a GPU
    say: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    transformers(NEEDS)
    if precision not in ("auto", "bf16", "fp32"):
        raise UserError(f"--precision {precision!r}; allowed: auto, bf16, fp32")
    here = pick_device(device)
    rows = []
    for name in tasks:
        task = benchmark(name)
        if task.kind not in ("classify", "regress", "answer") or task.unanswerable:
            raise UserError(f"bench finetune has no peer for {name}; choose among GLUE's tasks and squad")
        epochs, length = SETTINGS.get(name, (3.0, 128))
        folder = str(Path(data) / ("squad" if name == "squad" else "glue"))
        train, dev = (list(read_split(task, folder, split)) for split in ("train", "dev"))
        tune = TuneConfig(epochs=epochs, steps=steps, batch=batch, rate=rate, warmup=0.0, keep=0, log_every=100)
        tune = replace(tune, precision=precision)  # type: ignore[arg-type]  # looked at above
        recipe = TuneRecipe(
            model=model, task=TaskConfig(name=name, data=folder), reading=Reading(length=length), tune=tune
        )
        found: dict[str, list[dict[str, Any]]] = {"litebert": [], "transformers": []}
        for seed in range(seeds):
            now = replace(recipe, tune=replace(tune, seed=seed))
            order = ("litebert", "transformers") if seed % 2 == 0 else ("transformers", "litebert")
            for side in order:
                run = _ours if side == "litebert" else _theirs
                found[side].append(run(now, task, train, dev, here))
                say(f"{name}, {side}, seed {seed}: {found[side][-1]}")
        rows.append(_row(name, found, len(dev)))
        say(f"{name}: {rows[-1]}")
    name = torch.cuda.get_device_name() if here.type == "cuda" else "cpu"
    head = {"bench": "finetune", "model": model, "device": name, "torch": torch.__version__}
    return head | {
        "transformers": transformers(NEEDS).__version__,
        "seeds": seeds,
        "rate": rate,
        "precision": precision,
        "rows": rows,
    }


def _row(name: str, found: dict[str, list[dict[str, Any]]], count: int) -> dict[str, Any]:
    row: dict[str, Any] = {"task": name, "metric": found["litebert"][0]["metric"], "dev": count}
    for side, runs in found.items():
        row[f"{side}_seconds"] = statistics.median(run["seconds"] for run in runs)
        row[f"{side}_score"] = statistics.median(run["score"] for run in runs)
        row[f"{side}_scores"] = [run["score"] for run in runs]
    row["error"] = statistics.median(run["error"] for run in found["litebert"])
    row["time_ratio"] = row["litebert_seconds"] / row["transformers_seconds"]
    return row


def _ours(
    recipe: TuneRecipe, task: Task, train: Sequence[Example], dev: Sequence[Example], device: torch.device
) -> dict[str, Any]:
    """The loop of `finetune` without looks on the way: the Trainer does not take them either."""
    with tempfile.TemporaryDirectory() as folder, sdpa_kernel(ANY_SHAPE, set_priority=True):
        run = Run(Path(folder) / "run")
        try:
            seat, _ = take_seat(recipe, run, Processes(device), lambda _: None)
            wait(device)
            begun = time.perf_counter()
            lesson = seat.lesson
            made = list(units(lesson.tokenizer, task, train, lesson.taught.reading))
            seat = replace(seat, lesson=replace(lesson, train=made))
            _train(seat)
            wait(device)
            seconds = time.perf_counter() - begun
            scored = score(seat)
        finally:
            run.close()
    assert scored is not None, "nobody asks it to stop"
    first = scored[1][0]
    return {"seconds": seconds, "metric": first["name"], "score": first["value"], "error": first["error"]}


def _train(seat: Seat) -> None:
    seat.tutor.train()
    for number, _ in enumerate(take_steps(updates(seat, 0), seat.optimizer, work_of(seat)), 1):
        if number == seat.steps:
            return


def _theirs(
    recipe: TuneRecipe, task: Task, train: Sequence[Example], dev: Sequence[Example], device: torch.device
) -> dict[str, Any]:
    library = transformers(NEEDS)
    library.logging.set_verbosity_error()
    library.set_seed(recipe.tune.seed)
    tokenizer = library.AutoTokenizer.from_pretrained(recipe.model)
    with tempfile.TemporaryDirectory() as folder:
        model, ours = _their_model(recipe.model, task), load(recipe.model).tokenizer
        begun = time.perf_counter()
        rows = _their_rows(recipe, task, train, ours if task.kind == "answer" else tokenizer)
        trainer = library.Trainer(
            model=model,
            args=_arguments(recipe, folder, device),
            train_dataset=rows,
            data_collator=library.DataCollatorWithPadding(tokenizer),
        )
        trainer.remove_callback(library.PrinterCallback)  # standard output is ours: the table, or its JSON
        trainer.train()
        wait(device)
        seconds = time.perf_counter() - begun
        if task.kind == "answer":
            guesses = _their_answers(recipe, task, model, tokenizer, dev, device, Path(folder))
        else:
            blank = [replace(each, target=None) for each in dev]
            rows = _their_rows(recipe, task, blank, tokenizer)
            guesses = _decide(task, _their_logits(trainer.model, trainer.data_collator, rows))
    first = asdict(scores(replace(task, metrics=task.metrics[:1]), list(dev), guesses)[0])
    return {"seconds": seconds, "metric": first["name"], "score": first["value"], "error": first["error"]}


def _their_model(name: str, task: Task) -> Any:
    library = transformers(NEEDS)
    if task.kind == "answer":
        return library.AutoModelForQuestionAnswering.from_pretrained(name, dtype=torch.float32)
    outputs = 1 if task.kind == "regress" else len(task.labels)
    return library.AutoModelForSequenceClassification.from_pretrained(name, num_labels=outputs, dtype=torch.float32)


def _arguments(recipe: TuneRecipe, folder: str, device: torch.device) -> Any:
    tune, kind = recipe.tune, transformers(NEEDS).TrainingArguments
    newer = "train_sampling_strategy" in {each.name for each in fields(kind)}  # the older name is `group_by_length`
    grouped: dict[str, Any] = {"train_sampling_strategy": "group_by_length"} if newer else {"group_by_length": True}
    return kind(
        output_dir=folder,
        num_train_epochs=tune.epochs,
        max_steps=tune.steps or -1,
        per_device_train_batch_size=tune.batch,
        per_device_eval_batch_size=128,
        learning_rate=tune.rate,
        weight_decay=recipe.optimizer.weight_decay,
        bf16=resolve_precision(tune, device) == "bf16",
        use_cpu=device.type == "cpu",
        optim="adamw_torch_fused" if device.type == "cuda" else "adamw_torch",
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=tune.seed,
        dataloader_num_workers=0,
        **grouped,
    )


def _their_rows(recipe: TuneRecipe, task: Task, examples: Sequence[Example], tokenizer: Any) -> list[dict[str, Any]]:
    """What the Trainer takes. The windows of a question are ours on both sides, and timed on both."""
    length = recipe.reading.length
    if task.kind == "answer":
        reading = suited(task, recipe.reading, length).reading
        return [
            {
                "input_ids": unit.ids[0].tolist(),
                "token_type_ids": unit.types[0].tolist(),
                "attention_mask": [1] * len(unit.ids[0]),
                "start_positions": unit.target[0],
                "end_positions": unit.target[1],
            }
            for unit in units(tokenizer, task, examples, reading)
        ]
    pairs = list(zip(*(example.texts for example in examples), strict=True))
    made = tokenizer(*map(list, pairs), truncation=True, max_length=length)
    rows = [{key: made[key][at] for key in made} for at in range(len(examples))]
    for row, example in zip(rows, examples, strict=True):
        if example.target is not None:
            wanted: Any = example.target
            row["labels"] = float(wanted) if task.kind == "regress" else task.labels.index(wanted)
    return rows


@torch.inference_mode()
def _their_logits(model: Any, collate: Any, rows: list[dict[str, Any]], size: int = 128) -> np.ndarray:
    """In the order of the rows: under `group_by_length`, `Trainer.predict` answers in the order of its own batches."""
    model.eval()
    batches = (collate(rows[at : at + size]).to(model.device) for at in range(0, len(rows), size))
    return torch.cat([model(**batch).logits.float().cpu() for batch in batches]).numpy()


def _decide(task: Task, logits: Any) -> list[Target]:
    if task.kind == "regress":
        return [float(value) for value in np.asarray(logits).reshape(-1)]
    return [task.labels[int(at)] for at in np.asarray(logits).argmax(-1)]


def _their_answers(
    recipe: TuneRecipe, task: Task, model: Any, tokenizer: Any, dev: Sequence[Example], device: torch.device, to: Path
) -> list[Target]:
    """Its weights, answering through our windows."""
    model.save_pretrained(to / "peer")
    tokenizer.save_pretrained(to / "peer")
    taught = replace(load(to / "peer"), taught=suited(task, recipe.reading, recipe.reading.length))
    precision = torch.bfloat16 if device.type == "cuda" else torch.float32
    return [decide(task, said) for _, said, _ in listen([asked(taught, device, precision)], dev)]
