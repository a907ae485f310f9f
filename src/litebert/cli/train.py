"""`litebert pretrain`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from litebert.cli.show import Json, print_json
from litebert.config import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from litebert.recipe import Recipe


def pretrain(
    recipe: Annotated[str | None, typer.Argument(help="A recipe's name, or a TOML file; none to resume.")] = None,
    to: Annotated[Path | None, typer.Option("--to", help="The run's directory.")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="Change a setting: data.shards=shards/")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in that directory.")] = False,
    init_from: Annotated[
        str | None, typer.Option(help="Start from this model, run or hub name instead of fresh weights.")
    ] = None,
    device: Annotated[str, typer.Option(help="cuda or cpu; auto takes a GPU where there is one.")] = "auto",
    as_json: Json = False,
) -> None:
    """Shards to a pre-trained encoder. Killed or stopped, `--resume` goes on exactly there."""
    from litebert.strict import as_toml

    changes = [*(sets or []), *([f"run.init_from={as_toml(init_from)}"] if init_from else [])]
    run(begin(recipe, to, resume, changes), to, resume, device, as_json)


def distill(
    recipe: Annotated[str | None, typer.Argument(help="A recipe's name, or a TOML file; none to resume.")] = None,
    teacher: Annotated[str | None, typer.Option(help="The model that teaches: a folder, a run, a hub name.")] = None,
    to: Annotated[Path | None, typer.Option("--to", help="The run's directory.")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="Change a setting: distill.soft=3.0")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in that directory.")] = False,
    device: Annotated[str, typer.Option(help="cuda or cpu; auto takes a GPU where there is one.")] = "auto",
    as_json: Json = False,
) -> None:
    """A student that learns from shards and from a teacher's answers. Stopped, `--resume` goes on exactly there."""
    from litebert.strict import as_toml

    changes = [*(sets or []), *([f"distill.teacher={as_toml(teacher)}"] if teacher else [])]
    chosen = begin(recipe, to, resume, changes)
    if chosen is not None and not chosen.distill.teacher:
        raise UserError("say who teaches: --teacher MODEL")
    run(chosen, to, resume, device, as_json)


def begin(recipe: str | None, to: Path | None, resume: bool, changes: list[str]) -> "Recipe | None":
    """The recipe of a run that begins; None for one that goes on."""
    from litebert.recipe import apply_sets, changed, check_sections, read_recipe

    if to is None:
        raise UserError("say where the run shall live: --to DIRECTORY")
    if recipe is None and changes:
        raise UserError("--set, --init-from and --teacher change a recipe; name it")
    if recipe is None and not resume:
        raise UserError("name a recipe, or go on with a run by --resume")
    if recipe is None:
        return None
    table = changed(read_recipe(recipe), changes)
    check_sections(table)
    return apply_sets(table, [])


def run(chosen: "Recipe | None", to: Path | None, resume: bool, device: str, as_json: bool) -> None:
    assert to is not None, "looked at in `begin`"
    from litebert.train.pretrain import pretrain as train
    from litebert.train.processes import joined
    from litebert.train.stopping import Stopped

    with joined(device) as processes:
        show = Panel() if sys.stderr.isatty() and processes.lead else Lines(quiet=not processes.lead)
        try:
            with show:
                found = train(chosen, to, resume, processes, show)
        except Stopped as stopped:
            if processes.lead:
                typer.echo(f"{stopped}; go on with: litebert pretrain --to {to} --resume", err=True)
            raise typer.Exit(128 + stopped.signum) from None
    if as_json and processes.lead:
        print_json(found)


class Lines:
    """Progress where there is no terminal: a plain line each, on the error stream."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, line: dict[str, Any]) -> None:
        if not self.quiet:
            typer.echo(as_text(line), err=True)


class Panel:
    """Progress in a terminal: the newest figures in place, everything else above them."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self.console = Console(stderr=True)
        self.live = Live(console=self.console, refresh_per_second=4, transient=False)

    def __enter__(self) -> "Panel":
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def __call__(self, line: dict[str, Any]) -> None:
        if line["kind"] == "train":
            self.live.update(as_panel(line))
        else:
            self.console.print(as_text(line), markup=False, emoji=False, highlight=False)


def as_panel(line: dict[str, Any]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.ROUNDED, show_header=False, title="litebert pretrain", title_justify="left")
    table.add_column(justify="left")
    table.add_column(justify="right")
    for name, value in panel_rows(line):
        table.add_row(name, value)
    return table


def panel_rows(line: dict[str, Any]) -> list[tuple[str, str]]:
    timing = line["time"]
    rows = [
        ("step", f"{line['step']:,} of {line['steps']:,}"),
        ("phase", f"{line['phase']} ({line['passes']} passes)"),
        ("masked loss", f"{line['masked_loss']:.4f}"),
        ("masked accuracy", f"{100 * line['masked_accuracy']:.2f} %"),
    ]
    known = ("masked_loss", "order_loss", "next_loss")
    rows += [(k.replace("_", " "), f"{v:.4f}") for k, v in line.items() if k.endswith("_loss") and k not in known]
    for pair in ("order", "next"):
        if f"{pair}_loss" in line:
            rows.append((f"{pair} loss", f"{line[f'{pair}_loss']:.4f}"))
            rows.append((f"{pair} accuracy", f"{100 * line[f'{pair}_accuracy']:.2f} %"))
    rows += [
        ("learning rate", f"{line['rate']:.2e}"),
        ("gradient norm", f"{line['norm']:.2f}"),
        ("steps skipped", f"{line['skipped']}"),
        ("pieces seen", f"{line['pieces']:,}"),
        ("pieces a second", f"{timing['pieces_per_second']:,.0f}"),
        ("share of the device's peak", f"{100 * timing['share_of_peak']:.1f} %"),
        ("time left", clock(timing["seconds_left"])),
    ]
    if line.get("gradient_bytes"):
        rows.append(("gradient exchanged a step", f"{line['gradient_bytes'] / 1e6:,.1f} MB"))
    return rows


def as_text(line: dict[str, Any]) -> str:
    """One line for one event."""
    if line["kind"] == "note":
        return str(line["text"])
    if "scores" in line:
        found = ", ".join(f"{s['name']} {100 * s['value']:.2f} ± {100 * s['error']:.2f}" for s in line["scores"])
        if line["kind"] == "final":
            return f"the best, of step {line['best_step']:,}: {found}"
        return f"step {line['step']:,}, dev set of {line['scores'][0]['count']:,}: {found}{' (best)' * line['best']}"
    if line["kind"] == "tune":
        timing = line["time"]
        return (
            f"step {line['step']:,} of {line['steps']:,}, epoch {line['epoch']:.2f}, "
            f"loss {figure(line['loss'], '.4f')}, learning rate {line['rate']:.2e}, "
            f"gradient norm {figure(line['norm'], '.2f')}, steps skipped {line['skipped']}, "
            f"{timing['examples_per_second']:,.0f} examples a second, time left {clock(timing['seconds_left'])}"
        )
    if line["kind"] == "train":
        return ", ".join(f"{name} {value}" for name, value in panel_rows(line))
    parts = []
    for name, what in (("protocol", "held out"), ("own", "own masking")):
        found = line[name]
        accuracy = f"{100 * found['masked_accuracy']:.2f} ± {100 * found['masked_accuracy_error']:.2f} %"
        text = f"masked {accuracy}, perplexity {found['perplexity']:.2f}"
        for pair in ("order", "next"):
            if f"{pair}_accuracy" in found:
                share, error = (100 * found[f"{pair}_accuracy{end}"] for end in ("", "_error"))
                text += f", {pair} {share:.2f} ± {error:.2f} %"
        parts.append(f"{what}: {text} ({found['examples']:,} examples)")
    more = {f"length {length}": found for length, found in line.get("turns", {}).items()}
    more |= {f"{depth} passes": found for depth, found in line.get("depths", {}).items()}
    for what, found in more.items():
        shares = {name: found.get(f"{name}_accuracy") for name in ("masked", "order")}
        told = ", ".join(f"{name} {100 * share:.2f} %" for name, share in shares.items() if share is not None)
        parts.append(f"{what}: {told}")
    bits = f"{line['protocol']['bits_per_character']:.3f} bits a character"
    return f"{'at the end' if line['kind'] == 'final' else 'step'} {line['step']:,}; " + "; ".join(parts) + f"; {bits}"


def figure(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def clock(seconds: float) -> str:
    """
    >>> clock(59.6), clock(3725)
    ('1:00', '1:02:05')
    """
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"
