"""Recipes: TOML that decides a pre-training run, strictly read. Standard library only.

A file gives `[model] preset = "…"` and whatever differs, then `[data]`, `[optimizer]`, `[run]`, `[evaluate]` and a list
of `[[phases]]`: short sequences before long ones, few passes before many.
"""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

from litebert.config import (
    DialConfig,
    DistillConfig,
    ExampleConfig,
    GuideConfig,
    Layout,
    MaskConfig,
    ModelConfig,
    Reading,
    at_least,
    probability,
    seed_range,
)
from litebert.strict import UserError, check_types, neighbour, parse


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What is read, and what is to be predicted of it."""

    shards: str = ""  # the folder that `litebert corpus build` wrote
    layout: Layout = "segment-pair"
    objective: Literal["mlm", "sop", "nsp"] = "sop"
    short_rate: float = 0.1
    anywhere: float = 0.0
    twins: bool = False
    static_copies: int = 0
    mask: MaskConfig = field(default_factory=MaskConfig)

    def __post_init__(self) -> None:
        check_types(self)
        self.examples(512)

    def examples(self, length: int) -> ExampleConfig:
        return ExampleConfig(
            layout=self.layout,
            objective=self.objective,
            length=length,
            short_rate=self.short_rate,
            anywhere=self.anywhere,
            twins=self.twins,
            static_copies=self.static_copies,
            mask=self.mask,
        )


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A stretch of the run with one depth, and one length and batch, or several lengths in turn."""

    passes: int = 0  # layers that run; 0: all that the model has
    length: int = 512
    batch: int = 4096  # examples a step, over all devices
    rate: float = 0.00176  # the learning rate at its peak
    share: float = 1.0  # of the steps, among the shares of all phases
    warmup: float = 0.0  # steps at its start over which the rate rises; below 1: a share of the phase's steps
    pair_weight: float = 1.0  # of the pair's loss beside the masked one
    mask_rate: float = 0.0  # of the maskable pieces; 0: as [data.mask] says
    turns: tuple[int, ...] = ()  # lengths that its steps take in turn with `length`, in batches of as many pieces

    def __post_init__(self) -> None:
        check_types(self)
        probability(self, "mask_rate")
        at_least(self, "passes", 0)
        at_least(self, "length", 8)
        at_least(self, "batch", 1)
        for turn in self.turns:
            if turn < 8:
                raise UserError(f"turns = {list(self.turns)}: a length must be at least 8")
            if self.batch * self.length % turn:
                raise UserError(
                    f"turns = {list(self.turns)}: the {self.batch} x {self.length} pieces of a batch are no whole "
                    f"number of examples of length {turn}"
                )
        for name in ("rate", "share"):
            if getattr(self, name) <= 0:
                raise UserError(f"{name} = {getattr(self, name)} must be above 0")
        for name in ("warmup", "pair_weight"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} = {getattr(self, name)} must not be below 0")

    @property
    def lengths(self) -> tuple[int, ...]:
        """Of its steps, again and again."""
        return (self.length, *self.turns)

    def batch_of(self, length: int) -> int:
        """Examples of a step of this length."""
        return self.batch * self.length // length


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Gradients -> weights."""

    kind: Literal["lamb", "adamw", "muon"] = "lamb"  # muon: for matrices between states; AdamW for all else
    weight_decay: float = 0.01
    betas: tuple[float, ...] = (0.9, 0.999)
    eps: float = 1e-6
    clip: float = 1.0  # the most that the norm of all gradients may be; 0: no bound
    correct_bias: bool = False  # as the Adam paper does and Google's code does not
    momentum: float = 0.95  # Muon's
    rms: float = 0.2  # Muon's: the root mean square of an update before the rate; Adam's own is 0.2 to 0.4
    tables: float = 1.0  # times the rate: that of the word, position and type tables

    def __post_init__(self) -> None:
        check_types(self)
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"betas = {list(self.betas)} must be two numbers, at least 0 and below 1")
        for name in ("weight_decay", "clip"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} = {getattr(self, name)} must not be below 0")
        if not 0 <= self.momentum < 1:
            raise UserError(f"momentum = {self.momentum} must be at least 0 and below 1")
        for name in ("eps", "rms", "tables"):
            if getattr(self, name) <= 0:
                raise UserError(f"{name} = {getattr(self, name)} must be above 0")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """How long, and how."""

    steps: int = 0  # this many
    budget_minutes: float = 0.0  # or as many as fit, measured once and then fixed
    hold: float = 0.0  # share of the steps before the rate falls; 0: it falls as soon as it has risen
    seed: int = 0
    init_from: str = ""  # a model's folder, a run's directory or a hub name to start from instead of fresh weights
    precision: Literal["auto", "bf16", "fp32", "fp64"] = "auto"  # auto: bf16 on a GPU, fp32 elsewhere
    parallel: Literal["ddp", "fsdp"] = "ddp"  # where torchrun starts several: whole copies, or every weight in parts
    compile: Literal["auto", "on", "off"] = "auto"  # auto: on a GPU
    capture: Literal["auto", "off"] = "auto"  # auto: short steps on one GPU are recorded and replayed whole
    checkpointing: bool = False  # compute activations again in the backward pass instead of keeping them
    micro_batch: int = 0  # examples at once on a device, of whatever length; 0: as many as should fit
    workers: int = 2  # processes that make batches ahead, beside each that trains; at least one of each length in turn
    log_every: int = 50
    save_every: int = 1000
    keep: int = 2  # checkpoints
    most_skips: int = 5  # steps in a row whose loss or gradient is not finite, before the run stops

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("steps", "micro_batch", "workers"):
            at_least(self, name, 0)
        for name in ("log_every", "save_every", "keep", "most_skips"):
            at_least(self, name, 1)
        seed_range(self, "seed")
        if self.budget_minutes < 0 or not 0 <= self.hold <= 1:
            raise UserError("budget_minutes must not be below 0, and hold is a share between 0 and 1")
        if self.steps and self.budget_minutes:
            raise UserError("steps and budget_minutes both say how long the run is; give one of them")


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """When the held-out documents are looked at, and how many examples of them."""

    every: int = 1000  # steps; 0: at the end only
    examples: int = 2048
    final_examples: int = 20000

    def __post_init__(self) -> None:
        check_types(self)
        at_least(self, "every", 0)
        at_least(self, "examples", 1)
        at_least(self, "final_examples", 1)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What decides a run."""

    model: ModelConfig
    data: DataConfig = DataConfig()
    phases: tuple[Phase, ...] = (Phase(),)
    optimizer: OptimizerConfig = OptimizerConfig()
    run: RunConfig = RunConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    distill: DistillConfig = field(default_factory=DistillConfig)
    dial: DialConfig = field(default_factory=DialConfig)

    def __post_init__(self) -> None:
        check_types(self)
        if not self.phases:
            raise UserError("phases is empty; a run needs at least one")
        if self.optimizer.kind == "muon" and self.run.parallel == "fsdp":
            raise UserError("Muon needs whole matrices, and fsdp keeps them in parts: use parallel = ddp, or adamw")

    @property
    def one_text(self) -> bool:
        """Whether nothing ever tells the model what a second text is: no pairs here, and fresh weights before."""
        fresh = not self.run.init_from and (not self.distill.teacher or self.distill.start == "fresh")
        return fresh and not self.examples(self.phases[0]).pairs

    def examples(self, phase: Phase, length: int = 0) -> ExampleConfig:
        """What a phase learns from; of its lengths the first, or this one."""
        found = self.data.examples(length or phase.length)
        return replace(found, mask=replace(found.mask, rate=phase.mask_rate)) if phase.mask_rate else found


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """What is to be learned, and from which files: a benchmark by its name, or files of the user's own."""

    name: str = ""  # rte, squad2, race, …
    data: str = ""  # the folder of its files
    train: str = ""
    dev: str = ""
    texts: tuple[str, ...] = ()  # columns; none said: text, or whatever the kind has
    label: tuple[str, ...] = ()
    kind: Literal["auto", "classify", "several", "regress", "tag", "answer", "choice"] = "auto"
    held_out: float = 0.1  # share of the training file that is scored where there is no dev file
    split_seed: int = 0  # which part of it
    class_weights: Literal["none", "balanced"] = "none"  # balanced: rare classes count as much as common ones

    def __post_init__(self) -> None:
        check_types(self)
        seed_range(self, "split_seed")
        if not 0 < self.held_out < 1:
            raise UserError(f"held_out = {self.held_out} must be a share between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class TuneConfig:
    """How a model is taught a task."""

    epochs: float = 3.0
    steps: int = 0  # instead of epochs
    batch: int = 32  # examples a step; of answers: windows
    rate: float = 3e-5
    warmup: float = 0.1  # steps; below 1: a share of them
    schedule: Literal["linear", "constant"] = "linear"  # what the rate does after the warm-up
    dropout: float = -1.0  # of the encoder; below 0: as the model has it
    head_dropout: float = 0.1
    layer_decay: float = 1.0  # the rate of each layer is this times that of the layer above it
    freeze: int = 0  # this many of the lowest layers, and the embeddings, stay as they are
    passes: int = 0  # of a shared layer, while it learns and ever after; 0: as many as the model makes
    seed: int = 0
    evaluate_every: int = 0  # steps; 0: after each epoch
    patience: int = 0  # looks in a row without a better score, after which it stops; 0: never
    micro_batch: int = 0  # examples at once; 0: the whole batch
    precision: Literal["auto", "bf16", "fp32", "fp64"] = "auto"
    capture: Literal["auto", "off"] = "auto"  # auto: steps on a GPU are recorded and replayed whole
    log_every: int = 50
    keep: int = 1  # checkpoints to go on from; 0: none is written
    most_skips: int = 5  # steps in a row whose loss or gradient is not finite, before the run stops

    def __post_init__(self) -> None:
        check_types(self)
        probability(self, "head_dropout")
        seed_range(self, "seed")
        for name in ("batch", "log_every", "most_skips"):
            at_least(self, name, 1)
        for name in ("steps", "freeze", "passes", "evaluate_every", "patience", "micro_batch", "keep"):
            at_least(self, name, 0)
        for name in ("rate", "layer_decay"):
            if getattr(self, name) <= 0:
                raise UserError(f"{name} = {getattr(self, name)} must be above 0")
        if self.epochs <= 0 and not self.steps:
            raise UserError(f"epochs = {self.epochs} must be above 0")
        if self.dropout >= 1 or self.warmup < 0:
            raise UserError("dropout must be below 1, and warmup not below 0")


@dataclass(frozen=True, kw_only=True)
class TuneRecipe:
    """What decides a fine-tuning run."""

    model: str  # a folder, a run or a hub name to start from
    task: TaskConfig = TaskConfig()
    reading: Reading = field(default_factory=Reading)
    optimizer: OptimizerConfig = OptimizerConfig(kind="adamw", correct_bias=True, eps=1e-8)
    tune: TuneConfig = TuneConfig()
    distill: GuideConfig = field(default_factory=GuideConfig)
    dial: DialConfig = field(default_factory=DialConfig)

    def __post_init__(self) -> None:
        check_types(self)


def load_recipe(name: str, sets: Iterable[str] = ()) -> Recipe:
    """A recipe by its name inside the package (`cpu-demo`, `pretrain/cpu-demo`) or by its path (`mine.toml`)."""
    return apply_sets(read_recipe(name), sets)


def apply_sets(table: dict[str, Any], sets: Iterable[str]) -> Recipe:
    return parse(Recipe, changed(table, sets))


def check_sections(table: dict[str, Any]) -> None:
    """A section that counts for nothing without one of its keys is a mistake."""
    for section, key, advice in (
        ("distill", "teacher", "say who teaches: litebert distill RECIPE --teacher MODEL"),
        ("dial", "depths", "say which: --set dial.depths=[3,6]"),
    ):
        if table.get(section) and key not in table[section]:
            raise UserError(f"the recipe has a section [{section}] without {key}; {advice}")


def read_recipe(name: str) -> dict[str, Any]:
    """The table of a recipe, not yet checked."""
    file = _find_recipe(name)
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as problem:
        raise UserError(f"{name} is not TOML: {problem}") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise UserError(f"cannot read the recipe {name}: {problem}") from None
    return table


def changed(table: dict[str, Any], sets: Iterable[str]) -> dict[str, Any]:
    """A recipe's table with `--set section.key=value` changes made to it."""
    for assignment in sets:
        _assign(table, assignment)
    return table


def recipe_names() -> list[str]:
    """Every recipe inside the package, as `folder/name`."""
    return sorted(
        f"{folder.name}/{file.name.removesuffix('.toml')}"
        for folder in _recipes().iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".toml")
    )


def _recipes() -> Traversable:
    return resources.files("litebert") / "recipes"


def _find_recipe(name: str) -> Traversable:
    if name.endswith(".toml"):
        if not Path(name).is_file():
            raise UserError(f"no recipe file {name}; the recipes by name: {', '.join(recipe_names())}")
        return Path(name)
    known = recipe_names()
    found = [each for each in known if name in (each, each.split("/")[1])]
    if not found:  # ALBERT's second version is meant where none is said
        found = [each for each in known if f"{name}-v2" in (each, each.split("/")[1])]
    if not found:
        raise UserError(f"no recipe {name!r}{neighbour(name, [known_name.split('/')[1] for known_name in known])}")
    if len(found) > 1:
        raise UserError(f"{name!r} names several recipes: {', '.join(found)}; say the folder too")
    folder, file = found[0].split("/")
    return _recipes() / folder / f"{file}.toml"


def _assign(table: dict[str, Any], assignment: str) -> None:
    """`model.layers=6` or `model.activation=relu` (a bare word is a string)."""
    key, equals, text = assignment.partition("=")
    *parents, last = (part.strip() for part in key.split("."))
    if not equals or not last:
        raise UserError(f"--set {assignment!r} is not section.key=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise UserError(f"--set {assignment!r}: {parent} is a value, not a section")
    table[last] = value
