"""One text or two as pieces -> a sequence with the specials of its family around them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litebert.text.tokenizer import Tokenizer

Ids = NDArray[np.int32]


class Frame:
    """The specials around one text or two."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.cls, self.sep = ([] if (index := tokenizer.roles[role]) is None else [index] for role in ("cls", "sep"))
        self.between = self.sep * (2 if tokenizer.double_separator else 1)
        self.second = 0 if tokenizer.double_separator else 1

    def specials(self, texts: int) -> int:
        return len(self.cls) + len(self.sep) + (len(self.between) if texts == 2 else 0)

    def second_at(self, first: Sequence[int] | Ids) -> int:
        """Where the second text begins after this first one."""
        return len(self.cls) + len(first) + len(self.between)

    def join(self, parts: Sequence[Sequence[int] | Ids]) -> tuple[Ids, Ids]:
        """Ids and token types."""
        rows: list[Any] = [self.cls, parts[0]]
        for part in parts[1:]:
            rows += [self.between, part]
        ids = np.concatenate([np.asarray(row, dtype=np.int32) for row in (*rows, self.sep)])
        types = np.zeros_like(ids)
        if len(parts) == 2:
            types[self.second_at(parts[0]) :] = self.second
        return ids, types
