"""The settings of models and examples: `ModelConfig` and its fellows, and the `PRESETS`.

Only the standard library is imported here, so `litebert --help` and recipe errors are instant.
"""

from dataclasses import dataclass
from typing import Any, Literal

from litebert.strict import UserError, check_types, neighbour

__all__ = [  # what stands above this file, for all below it
    "PRESETS",
    "ExampleConfig",
    "HeadConfig",
    "HeadKind",
    "MaskConfig",
    "ModelConfig",
    "UserError",
    "preset",
]

Family = Literal["albert", "bert", "roberta", "distilbert"]
Sharing = Literal["none", "attention", "ffn", "all"]
Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
HeadKind = Literal["mlm", "pair", "classify", "regress", "tag", "span", "span-beam", "choice"]

# A config may come from a stranger, and must not be able to fill the memory before its tensors have been looked at.
MOST_LAYERS = 4096
MOST_SIZE = 1 << 24


def at_least(config: object, name: str, least: int) -> None:
    if getattr(config, name) < least:
        raise UserError(f"{name} = {getattr(config, name)} must be at least {least}")


def probability(config: object, name: str) -> None:
    if not 0 <= getattr(config, name) < 1:
        raise UserError(f"{name} = {getattr(config, name)} must be at least 0 and below 1")


def seed_range(config: object, name: str) -> None:
    """What NumPy, PyTorch and eight bytes all take."""
    if not 0 <= getattr(config, name) < 1 << 63:
        raise UserError(f"{name} = {getattr(config, name)} must be a whole number from 0 to 2**63 - 1")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The encoder. Families differ only in these numbers, in their published names, and in the shape of some heads."""

    family: Family = "albert"
    vocab_size: int = 30000
    embedding_size: int = 128
    hidden_size: int = 768
    ffn_size: int = 3072
    layers: int = 12
    heads: int = 12
    sharing: Sharing = "all"
    groups: int = 1  # how many sets of shared weights, each serving a run of consecutive layers
    inner_groups: int = 1  # blocks inside a layer; depth = layers × inner_groups
    positions: int = 512
    position_offset: int = 0  # RoBERTa's first position is row pad_id + 1 = 2 of its table
    token_types: int = 2  # 0: none (DistilBERT)
    activation: Activation = "gelu_tanh"
    norm_eps: float = 1e-12
    dropout: float = 0.0
    attention_dropout: float = 0.0
    projection: Literal["where-needed", "always"] = "where-needed"  # Google: only where E != H; transformers: always
    pooler: bool = True
    causal: bool = False  # left-to-right attention, for BERT's own ablation
    pad_id: int = 0
    init_std: float = 0.02

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("vocab_size", "embedding_size", "hidden_size", "ffn_size", "layers", "heads", "positions"):
            at_least(self, name, 1)
            if getattr(self, name) > MOST_SIZE:
                raise UserError(f"{name} = {getattr(self, name)} is more than the {MOST_SIZE} allowed")
        for name in ("groups", "inner_groups"):
            at_least(self, name, 1)
        for name in ("position_offset", "token_types", "pad_id"):
            at_least(self, name, 0)
            if getattr(self, name) > MOST_SIZE:
                raise UserError(f"{name} = {getattr(self, name)} is more than the {MOST_SIZE} allowed")
        for name in ("dropout", "attention_dropout"):
            probability(self, name)
        for name in ("norm_eps", "init_std"):
            if not 0 < getattr(self, name) < 1:
                raise UserError(f"{name} = {getattr(self, name)} must be above 0 and below 1")
        if self.hidden_size % self.heads:
            near = [h for h in range(1, self.hidden_size + 1) if self.hidden_size % h == 0]
            best = min(near, key=lambda h: abs(h - self.heads))
            raise UserError(
                f"hidden_size = {self.hidden_size} does not divide into heads = {self.heads}; the nearest is {best}"
            )
        if self.layers * self.inner_groups > MOST_LAYERS:
            raise UserError(
                f"layers × inner_groups = {self.layers * self.inner_groups} is more than the {MOST_LAYERS} allowed"
            )
        if self.groups > self.layers:
            raise UserError(f"groups = {self.groups} is more than layers = {self.layers}; each group needs a layer")
        if self.sharing == "none" and self.groups != 1:
            raise UserError(f"groups = {self.groups} says nothing with sharing = 'none'; leave it 1 or share something")
        if self.pad_id >= self.vocab_size:
            raise UserError(f"pad_id = {self.pad_id} is outside the vocabulary of {self.vocab_size} pieces")

    @staticmethod
    def from_preset(name: Any) -> "ModelConfig":
        return preset(name)

    @property
    def projects(self) -> bool:
        """Whether a linear map stands between the embeddings (E) and the trunk (H)."""
        return self.projection == "always" or self.embedding_size != self.hidden_size

    @property
    def one_layer(self) -> bool:
        """Whether every layer is the same one, so that it can run any number of times."""
        return self.sharing == "all" and self.groups == 1

    @property
    def depth(self) -> int:
        return self.layers * self.inner_groups


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """What stands on the encoder. A model may carry several heads of different kinds (masked LM and sentence pair)."""

    kind: HeadKind
    labels: tuple[str, ...] = ()  # names, in the order of the logits; classify and tag need them, regress may have one
    several: bool = False  # classify: each label is true or not by itself
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_types(self)
        probability(self, "dropout")
        least, most = {"classify": (1, None), "tag": (1, None), "regress": (0, 1)}.get(self.kind, (0, 0))
        if len(self.labels) < least:
            raise UserError(f"a {self.kind} head needs the names of its labels")
        if most is not None and len(self.labels) > most:
            raise UserError(f"a {self.kind} head has no use for {len(self.labels)} labels")
        if len(set(self.labels)) != len(self.labels):
            twice = next(name for name in self.labels if self.labels.count(name) > 1)
            raise UserError(f"label {twice!r} is named twice in the {self.kind} head")
        if self.several and self.kind != "classify":
            raise UserError(f"several labels at once are for a classify head, not for {self.kind}")
        if self.dropout and self.kind == "mlm":
            raise UserError("a masked-LM head has no dropout")


Layout = Literal["segment-pair", "sentence-pair", "full-sentences", "doc-sentences"]


@dataclass(frozen=True, kw_only=True)
class MaskConfig:
    """Which pieces pre-training predicts."""

    rate: float = 0.15  # of the maskable pieces
    unit: Literal["word", "piece"] = "word"  # what a span is made of: whole words, or single pieces
    ngram: int = 3  # a span is 1 to N units, p(n) ∝ 1/n
    masked: float = 0.8  # shown as [MASK]
    random: float = 0.1  # shown as another piece; the rest are shown as they are

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("rate", "masked", "random"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} = {getattr(self, name)} must be a share between 0 and 1")
        if self.rate in (0, 1):
            raise UserError(f"rate = {self.rate} leaves nothing to predict or nothing to see")
        if self.masked + self.random > 1:
            raise UserError(f"masked + random = {self.masked + self.random} is more than 1")
        at_least(self, "ngram", 1)


@dataclass(frozen=True, kw_only=True)
class ExampleConfig:
    """How sentences become examples."""

    layout: Layout = "segment-pair"
    objective: Literal["mlm", "sop", "nsp"] = "sop"  # mlm alone, or with sentence order or next sentence
    length: int = 512
    short_rate: float = 0.1  # of examples are made shorter at random, as short texts will come at fine-tuning
    anywhere: float = 0.0  # share of order pairs cut at any piece instead of between sentences: a far easier question
    twins: bool = False  # every order pair comes twice in a row, once swapped: only the order tells the two apart
    static_copies: int = 0  # 0: a fresh mask each epoch; n: the same n versions again and again
    mask: MaskConfig = MaskConfig()

    def __post_init__(self) -> None:
        check_types(self)
        at_least(self, "length", 8)
        at_least(self, "static_copies", 0)
        for name in ("short_rate", "anywhere"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} = {getattr(self, name)} must be a share between 0 and 1")
        for name in ("anywhere", "twins"):
            if getattr(self, name) and self.objective != "sop":
                raise UserError(f"{name} is about sentence order, and the objective is {self.objective!r}")
        if self.objective != "mlm" and not self.pairs:
            raise UserError(f"objective = {self.objective!r} needs pairs; layout {self.layout!r} has none")

    @property
    def pairs(self) -> bool:
        return self.layout in ("segment-pair", "sentence-pair")


@dataclass(frozen=True, kw_only=True)
class DistillConfig:
    """A teacher, and what each way of learning from it weighs. Without a teacher nothing here counts."""

    teacher: str = ""  # a model's folder, a run's directory or a hub name
    start: Literal["teacher", "fresh"] = "teacher"  # teacher: every other layer of it, or as many as there are
    temperature: float = 2.0
    soft: float = 5.0  # its probabilities
    masked: float = 2.0  # the masked pieces themselves
    cosine: float = 1.0  # the direction of the last states
    hidden: float = 0.0  # the states of matched layers
    attention: float = 0.0  # who looks at whom in matched layers
    where: Literal["all", "masked"] = "all"  # the pieces whose probabilities are taught
    top: int = 0  # of each the likeliest so many, the rest as one; 0: all of them
    cache: str = ""  # a folder that keeps them for another epoch or run

    def __post_init__(self) -> None:
        check_types(self)
        at_least(self, "top", 0)
        if self.cache and not self.top:
            raise UserError("cache keeps the likeliest answers only; say how many of each: top = 64")
        if self.cache and (self.cosine or self.hidden or self.attention):
            raise UserError("cache keeps probabilities, not states; set cosine, hidden and attention to 0, or no cache")
        for name in ("soft", "masked", "cosine", "hidden", "attention"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} = {getattr(self, name)} must not be below 0")
        if self.temperature <= 0:
            raise UserError(f"temperature = {self.temperature} must be above 0")
        if not (self.soft or self.masked or self.cosine or self.hidden or self.attention):
            raise UserError("every weight in [distill] is 0: there is nothing to learn")


@dataclass(frozen=True, kw_only=True)
class DialConfig:
    """Depths at which one shared layer learns to answer too."""

    depths: tuple[int, ...] = ()  # passes, of which each step draws one; none: no dial
    weight: float = 1.0  # of the shallow answer's own losses
    soft: float = 1.0  # of the deep answer as its teacher

    def __post_init__(self) -> None:
        check_types(self)
        if any(depth < 1 for depth in self.depths):
            raise UserError(f"depths = {list(self.depths)} must be at least 1")
        if self.weight < 0 or self.soft < 0:
            raise UserError("weight and soft must not be below 0")
        if self.depths and not (self.weight or self.soft):
            raise UserError("weight and soft are both 0: the depths would learn nothing")


@dataclass(frozen=True, kw_only=True)
class GuideConfig:
    """A teacher of the same task. Without one nothing here counts."""

    teacher: str = ""  # a fine-tuned model with the same tokenizer
    temperature: float = 2.0
    soft: float = 0.5  # weight of its answers
    hard: float = 0.5  # of the labels

    def __post_init__(self) -> None:
        check_types(self)
        if self.soft < 0 or self.hard < 0 or self.soft + self.hard == 0:
            raise UserError("soft and hard must not be below 0, nor both 0")
        if self.temperature <= 0:
            raise UserError(f"temperature = {self.temperature} must be above 0")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How texts become sequences. It travels with the model, so that what it is asked looks like what it learned."""

    length: int = 0  # pieces, specials included; 0: as suits the kind of task
    long: Literal["cut", "windows"] = "cut"  # what becomes of longer texts
    stride: int = 128  # pieces from the beginning of a window to that of the next
    question_length: int = 0  # pieces kept of a question, or of an option with its question; 0: as suits the kind
    answer_length: int = 30  # the most pieces of an answer

    def __post_init__(self) -> None:
        check_types(self)
        if self.length:
            at_least(self, "length", 8)
        at_least(self, "question_length", 0)
        for name in ("stride", "answer_length"):
            at_least(self, name, 1)


def _albert(hidden_size: int, layers: int, heads: int, version: int, dropout: float = 0.1, **more: Any) -> ModelConfig:
    """v1 has dropout and the erf GELU, v2 no dropout and the tanh GELU, as their `config.json` files say."""
    rate = dropout if version == 1 else 0.0
    return ModelConfig(
        hidden_size=hidden_size,
        ffn_size=4 * hidden_size,
        layers=layers,
        heads=heads,
        activation="gelu" if version == 1 else "gelu_tanh",
        dropout=rate,
        attention_dropout=rate,
        **more,
    )


def _bert(hidden_size: int, layers: int, heads: int, **more: Any) -> ModelConfig:
    settings: dict[str, Any] = {"family": "bert", "vocab_size": 30522} | more
    return ModelConfig(
        embedding_size=hidden_size,
        hidden_size=hidden_size,
        ffn_size=4 * hidden_size,
        layers=layers,
        heads=heads,
        sharing="none",
        activation="gelu",
        dropout=0.1,
        attention_dropout=0.1,
        **settings,
    )


_ROBERTA: dict[str, Any] = {
    "family": "roberta",
    "vocab_size": 50265,
    "position_offset": 2,
    "token_types": 1,
    "norm_eps": 1e-5,
    "pooler": False,
    "pad_id": 1,
}

PRESETS: dict[str, ModelConfig] = {
    f"albert-{size}{suffix}": _albert(hidden, layers, heads, version, 0.0 if size == "xxlarge" else 0.1)
    for size, hidden, layers, heads in (
        ("base", 768, 12, 12),
        ("large", 1024, 24, 16),
        ("xlarge", 2048, 24, 16),  # the files in use say 16 heads, one released config says 32: same parameters
        ("xxlarge", 4096, 12, 64),
    )
    for suffix, version in (("", 2), ("-v1", 1), ("-v2", 2))
} | {
    # small ones that a laptop can train
    "albert-tiny": _albert(128, 4, 4, 2, embedding_size=64, vocab_size=8000, positions=128),
    "albert-mini": _albert(256, 6, 4, 2, embedding_size=96, vocab_size=8000, positions=256),
    "albert-small": _albert(384, 12, 6, 2),
    "bert-tiny": _bert(128, 2, 2),
    "bert-base": _bert(768, 12, 12),
    "bert-large": _bert(1024, 24, 16),
    "bert-xlarge": _bert(2048, 24, 16, vocab_size=30000),  # the ALBERT paper's: wider than BERT-large, and worse
    "roberta-base": _bert(768, 12, 12, **_ROBERTA),
    "roberta-large": _bert(1024, 24, 16, **_ROBERTA),
    "distilroberta-base": _bert(768, 6, 12, **_ROBERTA),
    "distilbert-base": _bert(768, 6, 12, family="distilbert", token_types=0, pooler=False),
}


def preset(name: Any) -> ModelConfig:
    if not isinstance(name, str):
        raise UserError(f"preset takes a name, not {name!r}")
    if name not in PRESETS:
        raise UserError(f"unknown preset {name!r}{neighbour(name, PRESETS)}")
    return PRESETS[name]
