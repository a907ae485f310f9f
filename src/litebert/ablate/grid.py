"""A table's recipe, and a scale -> its cells, each with every setting that decides it.

A recipe is data only: what the table is called and where the paper prints it, what each of the scales starts from, the
cells with what they change and what the paper printed of them, and the findings that are looked for.
"""

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from litebert.config import ModelConfig, UserError
from litebert.recipe import Recipe, changed, read_recipe, recipe_names
from litebert.strict import check_types, neighbour, parse

ScaleName = Literal["smoke", "small", "paper"]
SCALES: tuple[ScaleName, ...] = ("smoke", "small", "paper")
Measure = Literal[  # the columns there are; -frozen: by a linear head on frozen states, whatever pre-training asked
    "parameters",
    "speed",
    "steps",
    "masked",
    "perplexity",
    "order",
    "next",
    "order-frozen",
    "next-frozen",
    "tasks",
    "average",
    "change",
]
Way = Literal["above", "below", "near"]
NAME = re.compile(r"[a-z0-9][a-z0-9.+-]*")  # it becomes a folder


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large a table is made."""

    base: str  # the recipe that pre-trains every cell
    set: dict[str, Any] = field(default_factory=dict)  # what all cells change of it
    tasks: tuple[str, ...] = ()
    tune: str = ""  # the recipe that teaches them; none: each task's own, as the paper's appendix has it
    pairs: int = 20_000  # examples that a head on frozen states learns from
    note: str = ""  # what a reader of this table must know

    def __post_init__(self) -> None:
        check_types(self)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A row: what differs, and what the paper printed of it."""

    name: str
    set: dict[str, Any] = field(default_factory=dict)
    smoke: dict[str, Any] = field(default_factory=dict)  # what differs at that scale alone
    small: dict[str, Any] = field(default_factory=dict)
    paper: dict[str, Any] = field(default_factory=dict)
    printed: dict[str, Any] = field(default_factory=dict)  # the paper's figures, by its columns
    start: str = ""  # goes on from the model of another cell
    teacher: str = ""  # learns from the model of another cell
    of: str = ""  # is the model of another cell, used otherwise
    as_long_as: str = ""  # trains as long as another cell did
    by: Literal["steps", "time"] = "steps"  # what is as long
    features: str = ""  # the tasks are learned by a linear model of these frozen layers
    text: Literal["", "more"] = ""  # more: trained on the larger shards

    def __post_init__(self) -> None:
        check_types(self)
        if not NAME.fullmatch(self.name):
            raise UserError(f"a cell's name is small letters, digits, '.', '+' and '-', not {self.name!r}")
        if self.of and (self.set or self.smoke or self.small or self.paper or self.as_long_as):
            raise UserError(f"cell {self.name!r} is the model of {self.of!r}, so it has no settings of its own")
        if self.by != "steps" and not self.as_long_as:
            raise UserError(f"cell {self.name!r}: by says what is as long as another cell's, and as_long_as names none")

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(name for name in (self.start, self.teacher, self.of, self.as_long_as) if name)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What the paper says its table shows, as a comparison that can fail."""

    claim: str
    columns: tuple[Measure, ...]
    cell: str
    way: Way  # the cell's figure is above, below or near the others'
    than: tuple[str, ...] = ()  # cells
    value: float | None = None  # or a number, in the column's unit
    margin: float = 0.0  # near: how far apart still counts as the same

    def __post_init__(self) -> None:
        check_types(self)
        if bool(self.than) == (self.value is not None):
            raise UserError(f"finding {self.claim!r} compares with cells (than) or with a number (value): say one")
        if (self.way == "near") != (self.margin > 0):
            raise UserError(f"finding {self.claim!r}: a margin goes with way = 'near', and must be above 0")


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table of the paper."""

    title: str
    source: str
    note: str = ""
    columns: tuple[Measure, ...]
    reference: str = ""  # the cell that speed-ups and changes are relative to
    smoke: Scale
    small: Scale
    paper: Scale
    cells: tuple[Cell, ...]
    findings: tuple[Finding, ...] = ()

    def __post_init__(self) -> None:
        check_types(self)
        names = [cell.name for cell in self.cells]
        if len(set(names)) < len(names):
            raise UserError(f"two cells are called {next(n for n in names if names.count(n) > 1)!r}")
        for at, cell in enumerate(self.cells):
            for other in cell.needs:
                if other not in names[:at]:
                    raise UserError(f"cell {cell.name!r} needs {other!r}, which must stand above it")
            if cell.as_long_as and self.cells[names.index(cell.as_long_as)].of:
                raise UserError(f"cell {cell.name!r} is as long as {cell.as_long_as!r}, which trains nothing itself")
        for finding in self.findings:
            for name in (finding.cell, *finding.than):
                _known(name, names, f"finding {finding.claim!r}: no cell")
            for column in finding.columns:
                _known(column, self.columns, f"finding {finding.claim!r}: no column")
        relative = {"speed", "change"} & set(self.columns)
        if relative:
            _known(self.reference, names, f"column {min(relative)!r} is relative to a cell, and reference is")

    def scale(self, name: str) -> Scale:
        _known(name, SCALES, "no scale")
        return {"smoke": self.smoke, "small": self.small, "paper": self.paper}[name]


@dataclass(frozen=True)
class Planned:
    """A cell at a scale: nothing is left open but the seed and the folders."""

    cell: Cell
    recipe: Recipe

    @property
    def name(self) -> str:
        return self.cell.name


def _known(name: str, names: Iterable[str], what: str) -> None:
    if name not in names:
        raise UserError(f"{what} {name!r}{neighbour(name, names)}")


def grid_names() -> list[str]:
    return [name.partition("/")[2] for name in recipe_names() if name.startswith("ablate/")]


def read_grid(name: str) -> Grid:
    """By its name inside the package, or by its path."""
    if not name.endswith(".toml") and name not in grid_names():
        raise UserError(f"no table {name!r}{neighbour(name, grid_names(), 'there are')}")
    return parse(Grid, read_recipe(name if name.endswith(".toml") else f"ablate/{name}"))


def plan_cells(grid: Grid, scale: str, sets: Iterable[str] = (), only: Sequence[str] = ()) -> list[Planned]:
    """The cells in order; `only` some of them, and those that they need. `sets` change all, as `--set` does;
    `CELL:key=value` changes one, after those."""
    chosen = grid.scale(scale)
    names = {cell.name: cell for cell in grid.cells}
    wanted: set[str] = set()
    ask = list(only) or list(names)
    while ask:
        name = ask.pop()
        _known(name, names, "no cell")
        wanted.add(name)
        ask += names[name].needs
    said = [_addressed(each) for each in sets]
    for name, change in said:
        if name:
            _check_addressed(name, change, names, wanted)
    planned: list[Planned] = []
    for cell in grid.cells:
        if cell.name in wanted:
            real = names[cell.of] if cell.of else cell
            mine = [change for whose in ("", real.name) for name, change in said if name == whose]
            try:
                planned.append(Planned(cell, settings(chosen, real, scale, mine)))
            except UserError as problem:
                raise UserError(f"cell {cell.name!r} at {scale}: {problem}") from None
    return planned


def _addressed(change: str) -> tuple[str, str]:
    """Whom a `--set` is for, and what it says.

    >>> _addressed("teacher:run.steps=9"), _addressed("data.shards=c:/text")
    (('teacher', 'run.steps=9'), ('', 'data.shards=c:/text'))
    """
    key, equals, value = change.partition("=")
    name, colon, key = key.rpartition(":")
    if colon and not name:
        raise UserError(f"--set {change}: name the cell before the colon, or leave the colon out for all")
    return name, key + equals + value


def _check_addressed(name: str, change: str, cells: Mapping[str, Cell], wanted: Iterable[str]) -> None:
    """What would be said to nobody is refused."""
    _known(name, cells, "--set: no cell")
    cell, key = cells[name], change.partition("=")[0]
    if name not in wanted:
        raise UserError(f"--set {name}:{change}: that cell is not among those asked for")
    if cell.of:
        raise UserError(f"--set {name}:{change}: that cell is the model of {cell.of!r}; change that one")
    if cell.as_long_as and key in ("run.steps", "run.budget_minutes"):
        raise UserError(f"--set {name}:{change}: that cell is as long as {cell.as_long_as!r}; change that one")


def settings(scale: Scale, cell: Cell, name: str, sets: Iterable[str]) -> Recipe:
    """The base recipe, changed by the scale, then by the cell, then by the user; the same strict keys everywhere."""
    table = read_recipe(scale.base)
    for change in (scale.set, cell.set, getattr(cell, name)):
        table = merged(table, change)
    return parse(Recipe, changed(table, sets))


def merged(table: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Sections key by key; anything else, a list of phases too, is replaced.

    >>> merged({"model": {"layers": 3, "heads": 4}, "run": {}}, {"model": {"layers": 6}})
    {'model': {'layers': 6, 'heads': 4}, 'run': {}}
    """
    found = {key: copy.deepcopy(value) for key, value in table.items()}
    for key, value in change.items():
        below = found.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        found[key] = merged(below, value) if both else copy.deepcopy(value)  # type: ignore[arg-type]
    return found


def model_of(recipe: Recipe) -> ModelConfig:
    """The finished model: as deep as the last phase."""
    return replace(recipe.model, layers=recipe.phases[-1].passes or recipe.model.layers)


def plain(recipe: Recipe) -> dict[str, Any]:
    """A recipe as values that can be compared and written."""
    return asdict(recipe)
