"""A config -> what it costs: exact parameter counts, bytes, FLOPs, its plan drawn, and the papers' size tables."""

import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from typing import Any

from litebert.config import PRESETS, HeadConfig, ModelConfig, UserError
from litebert.model.cost import count, flops_per_piece, pretraining_heads
from litebert.model.encoder import plan_of

TABLES = ("sizes", "embedding", "sharing")


def draw_plan(config: ModelConfig) -> str:
    """Which weights run where, runs of equal layers folded.

    >>> print(draw_plan(PRESETS["albert-base"]))
    layers 1-12: attention 0, ffn 0
    >>> print(draw_plan(replace(PRESETS["albert-base"], layers=4, sharing="attention")))
    layer 1: attention 0, ffn 0
    layer 2: attention 0, ffn 1
    layer 3: attention 0, ffn 2
    layer 4: attention 0, ffn 3
    """
    plan = plan_of(config)
    lines, start = [], 0
    for layer in range(1, len(plan) + 1):
        if layer == len(plan) or plan[layer] != plan[start]:
            a, f = plan[start]
            run = f"layer {layer}" if layer == start + 1 else f"layers {start + 1}-{layer}"
            lines.append(f"{run}: attention {a}, ffn {f}")
            start = layer
    if len(lines) > 24:
        lines[12:-11] = [f"… {len(lines) - 23} more …"]
    return "\n".join(lines)


def describe(name: str, config: ModelConfig, heads: Sequence[HeadConfig] = ()) -> dict[str, Any]:
    """Everything `litebert info` says, as plain values."""
    parts = count(config, heads)
    pooler = parts.get("pooler", 0)
    backbone = sum(n for part, n in parts.items() if part != "pooler" and not part.endswith("head"))
    total = sum(parts.values())
    parameters: dict[str, Any] = {
        "parts": parts,
        "backbone": backbone,
        "backbone_and_pooler": backbone + pooler,
        "total": total,
    }
    able = pretraining_heads(config)
    if not heads and able:
        parameters["backbone_and_mlm_head"] = sum(count(replace(config, pooler=False), able[:1]).values())
        if len(able) == 2:
            parameters["with_mlm_and_pair_heads"] = sum(count(config, able).values())
    lengths = sorted({min(128, config.positions), min(512, config.positions)})
    return {
        "name": name,
        "config": asdict(config),
        "heads": [asdict(head) for head in heads],
        "parameters": parameters,
        "bytes": {"float32": 4 * total, "bfloat16": 2 * total},
        "flops_per_piece": {str(n): flops_per_piece(config, n) for n in lengths},
        "depth": config.depth,
        "plan": plan_of(config),
    }


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """A row of a paper's table: its printed size beside our count by the paper's own rule."""

    model: str
    sharing: str
    embedding_size: int
    printed: str
    ours: int
    agrees: bool
    why: str


def papers() -> dict[str, Any]:
    """The published figures that ship with the package."""
    return tomllib.loads((resources.files("litebert") / "report" / "papers.toml").read_text(encoding="utf-8"))


def paper_table(name: str) -> list[PaperRow]:
    if name not in TABLES:
        raise UserError(f"no table {name!r}; the tables: {', '.join(TABLES)}")
    table = papers()["albert"][name]
    rows = []
    for values in table["rows"]:
        row = dict(zip(table["columns"], values, strict=True))
        if name == "sizes":
            config = replace(PRESETS[row["model"]], vocab_size=30000)
            label = row["model"]
        else:
            size = row["E"]
            config = replace(PRESETS["albert-base"], embedding_size=size, sharing=row["sharing"])
            label = "albert-base"
        rows.append(_paper_row(label, config, row["parameters"]))
    return rows


def _paper_row(label: str, config: ModelConfig, printed: str) -> PaperRow:
    """The paper's rule, as its figures show: the pooler counts where weights are shared, and not where they are not."""
    counted = config if config.sharing != "none" else replace(config, pooler=False)
    ours = sum(count(counted).values())
    agrees = f"{ours / 1e6:.0f}M" == printed
    return PaperRow(
        model=label,
        sharing=config.sharing,
        embedding_size=config.embedding_size,
        printed=printed,
        ours=ours,
        agrees=agrees,
        why="" if agrees else _why(config, ours, printed),
    )


def _why(config: ModelConfig, ours: int, printed: str) -> str:
    """The paper's larger models: does an older layout, with positions, types and their norm H wide, give its figure?"""
    rows = config.positions + config.position_offset + config.token_types + 2  # two more: the norm's weight and bias
    older = ours + rows * (config.hidden_size - config.embedding_size)
    if f"{older / 1e6:.0f}M" == printed:
        return f"with position and type tables H wide, probably an earlier layout, it is {older / 1e6:.1f}M"
    return f"no layout gives it: {ours / 1e6:.1f}M as released, {older / 1e6:.1f}M with position and type tables H wide"
