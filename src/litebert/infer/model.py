"""`load(path or hub name)` -> `Model`: encoder, heads, tokenizer and labels together.

>>> model = load("somewhere/albert-base-v2")                       # doctest: +SKIP
>>> states = model.encoder(input_ids, attention_mask=mask)          # doctest: +SKIP
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import overload

import torch

from litebert.config import PRESETS, ModelConfig, UserError
from litebert.files import meant
from litebert.infer import ask
from litebert.infer.ask import Tagged, Told
from litebert.infer.embed import Pool, Vectors, embed, embedder
from litebert.infer.fill import Guess, fill, fill_many
from litebert.infer.first import ends_of
from litebert.infer.quick import is_quick, quicken
from litebert.model.encoder import Encoder
from litebert.model.heads import Network
from litebert.model.weights import CHECKPOINTS, OURS, load_network, save_network
from litebert.tasks.hub import fetch
from litebert.tasks.taught import FILE as TASK
from litebert.tasks.taught import Taught, read_taught, write_taught
from litebert.text.tokenizer import BESIDE, FILES, Tokenizer

SHIPPED = "litebert-base"  # an ALBERT base that comes with the package; docs/how-it-was-trained.md
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(kw_only=True)
class Model:
    """What a folder of a trained model holds, in memory."""

    network: Network
    tokenizer: Tokenizer | None = None
    stored: torch.dtype = torch.float32  # the type of the weights in the file; in memory they are float32
    taught: Taught | None = None  # the task it was fine-tuned on, if it was

    @property
    def config(self) -> ModelConfig:
        return self.network.config

    @property
    def encoder(self) -> Encoder:
        return self.network.encoder

    @property
    def heads(self) -> torch.nn.ModuleDict:
        return self.network.heads

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of what its classify or tag head tells apart; none for other heads."""
        return next((head.labels for head in self.network.head_configs if head.labels), ())

    @overload
    def fill(self, text: str, top: int = 5, passes: int | None = None) -> list[list[Guess]]: ...
    @overload
    def fill(
        self, text: list[str] | tuple[str, ...], top: int = 5, passes: int | None = None
    ) -> list[list[list[Guess]]]: ...
    def fill(
        self, text: str | list[str] | tuple[str, ...], top: int = 5, passes: int | None = None
    ) -> list[list[Guess]] | list[list[list[Guess]]]:
        """The likeliest pieces for each mask in a text, best first; of several texts, that for each."""
        return fill(self, text, top, passes) if isinstance(text, str) else fill_many(self, text, top, passes)

    def classify(
        self,
        texts: Sequence[str | tuple[str, str]],
        *,
        passes: int | None = None,
        settle: float | None = None,
        from_passes: int | None = None,
    ) -> list[Told]:
        """The label, the labels or the number of each text or pair of texts. `settle`: a text stops after the pass that
        changed its answer by no more than this, at the earliest after `from_passes` (2)."""
        return ask.classify(self, texts, passes, settle, from_passes)

    def tag(self, sentences: Sequence[str | Sequence[str]], *, passes: int | None = None) -> list[Tagged]:
        """A tag for each word of each sentence, and what the tags mark. A sentence is a list of words, or a text, of
        which punctuation before and behind words is split off."""
        return ask.tag(self, sentences, passes)

    def answer(self, question: str, passage: str, *, passes: int | None = None) -> Told:
        """What the passage says to a question, in its own words."""
        return ask.answer(self, question, passage, passes)

    def choose(
        self,
        passage: str,
        options: Sequence[str],
        *,
        passes: int | None = None,
        settle: float | None = None,
        from_passes: int | None = None,
    ) -> Told:
        """Which of the options, each a question with its answer, fits the passage. `settle`: as for `classify`."""
        return ask.choose(self, passage, options, passes, settle, from_passes)

    def embed(
        self,
        texts: Sequence[str | tuple[str, str]],
        pool: Pool = "mean",
        layers: str = "last",
        *,
        length: int | None = None,
        passes: int | None = None,
        normalise: bool = False,
    ) -> Vectors:
        """One vector a text or pair of texts: (texts, numbers)."""
        return embed(embedder(self, pool, layers, length=length, passes=passes, normalise=normalise), texts)

    def save(self, folder: str | Path, dtype: torch.dtype | None = None) -> None:
        """A folder that `load` reads back: each shared weight once, in the type it came in unless another is said."""
        if is_quick(self.network):
            raise UserError(
                "the weights of this model are packed for answering; to save it load it without a precision"
            )
        save_network(self.network, Path(folder), dtype or self.stored)
        if self.tokenizer is not None:
            self.tokenizer.save(Path(folder))
        if self.taught is not None:
            write_taught(Path(folder), self.taught)


def load(name: str | Path, *, device: str | None = None, precision: str | None = None) -> Model:
    """A trained model: our own folder, one of `transformers`, `litebert-base` (it comes with the package), or a name on
    the hub. `precision`, fp32, bf16 or int8: to
    answer on a CPU as quickly as that goes, and nothing else; without it the model can be trained and saved too."""
    if precision is not None and torch.device(device or "cpu").type != "cpu":
        raise UserError(f"precision = {precision!r} is for a CPU; on {device} leave it out: answers are in bf16 there")
    folder = find(name)
    network, stored = load_network(folder)
    has_tokenizer = any((folder / file).is_file() for file in FILES)
    taught = read_taught(folder, network.head_configs, network.config.positions)
    tokenizer = Tokenizer.load(folder) if has_tokenizer else None
    if precision is not None:
        quicken(network, precision, ends_of(tokenizer))
    if device is not None:
        network.to(device)
    return Model(network=network, tokenizer=tokenizer, stored=stored, taught=taught)


def find(name: str | Path) -> Path:
    """The folder of a model: as given, that of a run's model or newest checkpoint, that of the package, or fetched from
    the hub."""
    if Path(name).is_dir():
        folder = Path(name)
        inside = [*sorted(folder.glob("checkpoints/step-*")), folder / "model"]
        held = [each for each in inside if (each / OURS).is_file()]
        return held[-1] if held and not (folder / OURS).is_file() else folder
    text = str(name)
    if Path(name).exists():
        raise UserError(f"{text} is a file; a model is the folder around it")
    if text == SHIPPED:
        return _shipped()
    if text in PRESETS:
        raise UserError(f"{text} is a preset, a shape without weights; give the folder or hub name of a trained model")
    if not _HUB_NAME.fullmatch(text):
        raise UserError(f"no folder {text}{meant(text)}")
    wanted = [OURS, TASK, "config.json", *CHECKPOINTS, "model-*.safetensors", "pytorch_model-*.bin", *FILES, *BESIDE]
    return fetch(text, wanted)


def _shipped() -> Path:
    folder = Path(str(resources.files("litebert") / "shipped" / SHIPPED))
    if not (folder / OURS).is_file():
        raise UserError(
            f"{SHIPPED} is not in this installation of litebert; install the package whole, or name a folder"
        )
    return folder
