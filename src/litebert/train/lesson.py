"""A recipe for fine-tuning -> what the run begins with: examples as units, and a network with the head they need."""

import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from litebert.config import HeadConfig, UserError
from litebert.infer.batch import SENTENCE, head_of, restated
from litebert.infer.model import Model, load
from litebert.model.heads import Network, sentence_shape
from litebert.model.weights import build
from litebert.recipe import TaskConfig, TuneConfig, TuneRecipe
from litebert.tasks.example import Example, Task
from litebert.tasks.features import Unit, units
from litebert.tasks.own import infer_task, read_own
from litebert.tasks.read import benchmark, hold_out, missing_classes, read_split
from litebert.tasks.targets import in_digits
from litebert.tasks.taught import Taught, suited
from litebert.text.tokenizer import Tokenizer

MANY = 5_000_000  # pieces: more are not kept for another run
_cut: deque[tuple[tuple[object, ...], list[Example], list[Unit]]] = deque(maxlen=2)  # the last ones


@dataclass(frozen=True)
class Lesson:
    """All that is learned from and scored on."""

    taught: Taught
    tokenizer: Tokenizer
    train: list[Unit]
    dev: list[Example]
    notes: tuple[str, ...]
    digest: str  # what tells these examples from others

    @property
    def targets(self) -> str:
        """What is to be answered, in a word for people."""
        return "numbers" if self.taught.task.kind == "regress" else "labels"


def read_lesson(recipe: TuneRecipe, model: Model) -> Lesson:
    config, notes = recipe.task, []
    if model.tokenizer is None:
        raise UserError(f"{recipe.model} has no tokenizer, so it cannot read texts")
    task = task_of(config)
    taught = suited(task, recipe.reading, model.config.positions)
    train, dev, said = read_files(config, task)
    for part, files in (("learn from", train), ("score on", dev)):
        if not files:
            raise UserError(f"there is nothing to {part}: the {'training' if files is train else 'dev'} file is empty")
    task, counted = counted_in(task, train)
    taught = replace(taught, task=task)
    notes += [f"task: {task.describe()}", said, *counted]
    lacking = missing_classes(task, dev)
    if lacking:
        notes.append(f"nothing to score of {', '.join(map(repr, lacking[:5]))}: the scores say nothing of it")
    made = cut_once(model.tokenizer, taught, train)
    notes += [*_cuts(made, taught, len(train)), f"{len(train):,} examples to learn from, {len(dev):,} to score"]
    return Lesson(taught, model.tokenizer, made, dev, tuple(notes), digest_of(task, train, dev))


def counted_in(task: Task, examples: Sequence[Example]) -> tuple[Task, list[str]]:
    """Numbers of a user's own file are taught as deviations from their mean, whatever they count: a head begins near 0
    and moves in small steps. Those of a benchmark are taught as they are, as the papers have it."""
    if task.kind != "regress" or task.name:
        return task, []
    values = np.array([example.target for example in examples], dtype=np.float64)
    low, high = float(values.min()), float(values.max())
    if low == high:
        return replace(task, mean=low), [f"every number to learn from is {in_digits(low)}: there is nothing to learn"]
    with np.errstate(over="ignore"):
        mean, scale = float(values.mean()), float(values.std()) or high - low
    if not np.isfinite(scale):
        raise UserError(
            f"numbers from {low:g} to {high:g} are too far apart to be taught; divide them, or take logarithms"
        )
    told = f"numbers from {in_digits(low)} to {in_digits(high)}: taught with mean {in_digits(mean)}"
    return replace(task, mean=mean, scale=scale), [f"{told} and deviation {in_digits(scale)}"]


def digest_of(task: Task, *parts: Sequence[Example]) -> str:
    what = (task.kind, task.labels) if (task.mean, task.scale) == (0, 1) else (task.kind, task.mean, task.scale)
    found = hashlib.sha256(repr(what).encode("utf-8", "surrogatepass"))
    for examples in parts:
        found.update(str(len(examples)).encode())
        for each in examples:
            found.update(repr((each.texts, each.target)).encode("utf-8", "surrogatepass"))
    return found.hexdigest()


def cut_once(tokenizer: Tokenizer, taught: Taught, examples: list[Example]) -> list[Unit]:
    """The same examples are not cut into pieces again for another seed, or another model that reads the same pieces."""
    how = (tokenizer.checksum, tokenizer.roles, taught)
    known = next((each for each in _cut if each[0] == how and each[1] == examples), None)
    if known is not None:
        _cut.remove(known)
        _cut.append(known)
        return known[2]
    made = list(units(tokenizer, taught.task, examples, taught.reading))
    if sum(unit.pieces for unit in made) <= MANY:
        _cut.append((how, examples, made))
    return made


def task_of(config: TaskConfig) -> Task:
    """The benchmark that is named, or what the training file is for."""
    if config.name:
        if config.train or config.dev or config.texts or config.label or config.kind != "auto":
            mine = "--train, --dev, --text, --label and --kind are for a file of your own"
            raise UserError(
                f"task {config.name!r} has its own files and columns; {mine}: say one or the other, not both"
            )
        if not config.data:
            raise UserError(f"say where the files of {config.name} are: --data FOLDER")
        return benchmark(config.name)
    if not config.train:
        raise UserError("say what to learn: --task NAME --data FOLDER, or --train FILE")
    if config.data:
        raise UserError(f"--data {config.data} is for a benchmark; of your own give --train and --dev")
    return infer_task(config.train, config.texts, config.label, None if config.kind == "auto" else config.kind)


def read_files(config: TaskConfig, task: Task) -> tuple[list[Example], list[Example], str]:
    """What to learn from and what to score on. What is held out depends on its own seed: runs that differ by theirs are
    scored on the same examples."""
    if task.name:
        both = [list(read_split(task, config.data, split)) for split in ("train", "dev")]
        return both[0], both[1], f"files of {task.name} in {config.data}"
    examples = list(read_own(config.train, task))
    if config.dev:
        return examples, list(read_own(config.dev, task)), f"scored on {config.dev}"
    seed = config.split_seed
    train, dev = hold_out(examples, task, config.held_out, seed)
    return train, dev, f"no dev file: {len(dev):,} of {len(examples):,} examples are held out and scored (seed {seed})"


def _cuts(made: Sequence[Unit], taught: Taught, examples: int) -> list[str]:
    reading, windows = taught.reading, taught.task.kind in (*SENTENCE, "tag")
    longer = {unit.example for unit in made if unit.lost}
    found = []
    if longer:
        lost = sum(unit.lost for unit in made)
        whole = lost + sum(unit.pieces for unit in made)
        found.append(
            f"{len(longer):,} of {examples:,} texts are longer than {reading.length} pieces and were cut "
            f"({100 * lost / whole:.1f} % of all pieces)"
            + ("; reading.long = 'windows' reads them whole" if windows and reading.long == "cut" else "")
        )
    several = sum(len(unit.ids) > 1 for unit in made) if taught.task.kind in SENTENCE else 0
    if several:
        found.append(f"{several:,} of {examples:,} texts are longer than {reading.length} pieces: read in windows")
    return found


def pupil(model: Model, task: Task, tune: TuneConfig) -> tuple[Network, tuple[str, ...]]:
    """The model's encoder under a head for the task, and what was done for it."""
    config, notes = model.config, []
    if tune.passes:
        model.encoder.trunk.walk(tune.passes)  # says where depth is no choice
        notes.append(f"passes of the shared layer: {tune.passes}, in the place of {config.layers}")
        config = replace(config, layers=tune.passes)
    if tune.dropout >= 0:
        config = replace(config, dropout=tune.dropout, attention_dropout=tune.dropout)
    kind: Any = head_of(task)
    labels = task.labels if kind in ("classify", "tag") else ()
    head = HeadConfig(kind=kind, labels=labels, several=task.kind == "several", dropout=tune.head_dropout)
    pooled = kind in ("classify", "regress", "choice") and sentence_shape(config, kind)[0] == "pooled"
    if pooled and not config.pooler:
        config = replace(config, pooler=True)
        notes.append("the model has no pooler: it begins with a fresh one")
    network = build(config, (head,), tune.seed)
    state = dict(model.network.encoder.state_dict())
    lacking = network.encoder.load_state_dict(state, strict=False)
    assert not lacking.unexpected_keys
    assert all(name.startswith("pooler.") for name in lacking.missing_keys)
    notes.append(_take_head(model, network, head, task))
    freeze(network, tune.freeze)
    if network.encoder.pooler is not None and not pooled:
        network.encoder.pooler.requires_grad_(False)  # nothing reads it, so nothing can teach it
    return network, tuple(notes)


def _take_head(model: Model, network: Network, head: HeadConfig, task: Task) -> str:
    """Keep the head of a model that was taught the same task; say what becomes of others."""
    before = model.taught.task if model.taught else None
    tells = (head.kind, head.labels, head.several)
    same = any((other.kind, other.labels, other.several) == tells for other in model.network.head_configs)
    if same and before is not None and _question(before) == _question(task):
        counting = restated(model.network, before, task)  # its answers stay what they were
        network.heads[head.kind].load_state_dict(counting.heads[head.kind].state_dict())
        return f"its {head.kind} head was taught the same task and is kept"
    others = [
        f"{other.kind} ({len(other.labels)} labels)" if other.labels else other.kind
        for other in model.network.head_configs
    ]
    gone = f" in the place of {', '.join(others)}" if others else ""
    return f"a fresh {head.kind} head{gone}"


def _question(task: Task) -> tuple[Any, ...]:
    return task.name, task.kind, task.texts, task.label


def freeze(network: Network, lowest: int) -> None:
    """The embeddings and so many of the lowest layers stay as they are."""
    if not lowest:
        return
    trunk = network.encoder.trunk
    if lowest > len(trunk.plan):
        raise UserError(f"freeze = {lowest}, and the model has {len(trunk.plan)} layers")
    kept = {part for pair in trunk.plan[lowest:] for part in zip("af", pair, strict=True)}
    frozen = {part for pair in trunk.plan[:lowest] for part in zip("af", pair, strict=True)}
    if kept & frozen:
        raise UserError(f"freeze = {lowest}: layers above share their weights with those below; freeze all or none")
    network.encoder.embeddings.requires_grad_(False)
    for which, index in frozen:
        (trunk.attention if which == "a" else trunk.ffn)[index].requires_grad_(False)


def layer_scale(network: Network, decay: float, name: str) -> float:
    """What a weight's rate is multiplied by: once for each layer that stands above it. A weight that several layers
    share counts as the highest of them."""
    plan, parts = network.encoder.trunk.plan, name.split(".")
    top = len(plan) + 1  # heads and pooler
    if parts[:2] == ["encoder", "embeddings"]:
        return decay**top
    if parts[:2] == ["encoder", "trunk"]:
        side, index = int(parts[2] == "ffn"), int(parts[3])
        level = max(layer for layer, pair in enumerate(plan) if pair[side] == index) + 1
        return decay ** (top - level)
    return 1.0


def guide_of(recipe: TuneRecipe, lesson: Lesson, precision: torch.dtype, device: torch.device) -> Network | None:
    """The teacher, ready to be asked: it was taught the same task and reads the same pieces."""
    name = recipe.distill.teacher
    if not name:
        return None
    teacher, task = load(name), lesson.taught.task
    if teacher.taught is None:
        raise UserError(f"{name} was taught no task, so it has no answers to teach; fine-tune it first")
    theirs = teacher.taught.task
    if (theirs.kind, theirs.labels, theirs.unanswerable) != (task.kind, task.labels, task.unanswerable):
        raise UserError(f"{name} was taught another task, {theirs.describe()}; here it is {task.describe()}")
    if teacher.tokenizer is None or teacher.tokenizer.checksum != lesson.tokenizer.checksum:
        raise UserError(f"{name} reads other pieces than its student; both need the same tokenizer")
    longest = lesson.taught.reading.length
    if teacher.config.positions < longest:
        raise UserError(
            f"{name} reads {teacher.config.positions} pieces, and texts here have up to {longest}; set reading.length"
        )
    network = restated(teacher.network, theirs, task)
    network = network.to(device, torch.promote_types(precision, torch.float32)).eval().requires_grad_(False)
    network.encoder.embeddings.compute = precision
    return network


def class_weights(task: Task, made: Sequence[Unit], config: TaskConfig, device: torch.device) -> torch.Tensor | None:
    """Balanced: each class weighs in all as much as any other (and a mean example 1)."""
    if config.class_weights == "none":
        return None
    if task.kind != "classify":
        raise UserError(f"class_weights are for classes, and this is a task of kind {task.kind!r}")
    counts = torch.bincount(torch.tensor([unit.target for unit in made]), minlength=len(task.labels)).double()
    return (len(made) / (len(task.labels) * counts.clamp(min=1))).float().to(device)
