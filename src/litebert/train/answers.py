"""A teacher's answers on disk: the likeliest pieces at each place, so that a second run or epoch need not ask again.

A file a batch. They are small beside the states of a network, but only probabilities are kept: what compares states has
to ask the teacher each time.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from litebert.corpus.shards import file_checksum, id_type
from litebert.files import read_json, replace_file
from litebert.model.heads import Network
from litebert.recipe import Recipe
from litebert.strict import UserError
from litebert.text.tokenizer import Tokenizer

IDENTITY = "answers.json"
WHAT = {  # what the answers depend on, and how a difference is told
    "teacher": "are those of another teacher",
    "tokenizer": "are in the pieces of another tokenizer",
    "shards": "are to other shards",
    "examples": "are to other examples of these shards (masks, layout or seed)",
    "settings": "were kept with another temperature, top or where",
}


def identity(recipe: Recipe, teacher: Network, tokenizer: Tokenizer) -> dict[str, str]:
    """What decides a teacher's answers, each as a word that is equal only where it is."""
    weights = hashlib.sha256()
    for name, tensor in sorted(teacher.state_dict().items()):
        weights.update(name.encode())
        weights.update(tensor.detach().cpu().float().contiguous().numpy().tobytes())
    data, config = recipe.data, recipe.distill
    rates = [phase.mask_rate for phase in recipe.phases]
    return {
        "teacher": weights.hexdigest(),
        "tokenizer": tokenizer.checksum,
        "shards": file_checksum(Path(data.shards) / "manifest.json"),
        "examples": f"{data.examples(512)} seed {recipe.run.seed}" + (f" rates {rates}" if any(rates) else ""),
        "settings": f"temperature {config.temperature} top {config.top} where {config.where}",
    }


def kept_answers(recipe: Recipe, teacher: Network | None, tokenizer: Tokenizer) -> "Answers | None":
    config = recipe.distill
    if teacher is None or not config.cache:
        return None
    what = identity(recipe, teacher, tokenizer)
    top = min(config.top, teacher.config.vocab_size)
    return Answers(Path(config.cache), what, teacher.config.vocab_size, top)


class Answers:
    """A folder of them, for one teacher, tokenizer and set of shards."""

    def __init__(self, folder: Path, what: Mapping[str, str], vocab_size: int, top: int) -> None:
        self.folder, self.kind, self.top = folder, np.dtype(id_type(vocab_size)), top
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / IDENTITY).exists():
                replace_file(folder / IDENTITY, (json.dumps(dict(what), indent=1) + "\n").encode())
        except OSError as problem:
            raise UserError(f"cannot write {folder}: {problem.strerror or problem}") from None
        known = read_json(folder / IDENTITY)
        for name, told in WHAT.items():
            if known.get(name) != what[name]:
                raise UserError(f"the answers in {folder} {told}; give another folder as distill.cache, or remove it")

    def get(self, key: str, places: int, device: torch.device) -> tuple[Tensor, Tensor] | None:
        """Log-probabilities and ids (places, top); None where they are not there, or not whole."""
        try:
            data = (self.folder / key).read_bytes()
        except OSError:
            return None
        count = places * self.top
        if len(data) != count * (4 + self.kind.itemsize):
            return None
        shares = np.frombuffer(data, np.float32, count).reshape(places, self.top)
        ids = np.frombuffer(data, self.kind, offset=4 * count).reshape(places, self.top)
        return torch.from_numpy(shares.copy()).to(device), torch.from_numpy(ids.astype(np.int64)).to(device)

    def put(self, key: str, shares: Tensor, ids: Tensor) -> None:
        """Whole or not at all; several runs may fill one folder at a time."""
        data = shares.float().cpu().numpy().tobytes() + ids.cpu().numpy().astype(self.kind).tobytes()
        handle, name = tempfile.mkstemp(dir=self.folder, prefix=".partial-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(name, self.folder / key)
        except OSError as problem:
            Path(name).unlink(missing_ok=True)
            raise UserError(f"cannot keep the teacher's answers in {self.folder}: {problem.strerror}") from None
