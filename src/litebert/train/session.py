"""What stays the same while a run is trained, and whom it tells."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from litebert.model.heads import Network
from litebert.recipe import Recipe
from litebert.text.tokenizer import Tokenizer
from litebert.train import dial, distill
from litebert.train.answers import Answers
from litebert.train.dial import Dialled
from litebert.train.distill import Pupil
from litebert.train.objective import Objective, Term
from litebert.train.processes import Processes
from litebert.train.run import Run

Say = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class Session:
    """What stays the same while a run is trained."""

    recipe: Recipe
    tokenizer: Tokenizer
    processes: Processes
    run: Run | None  # the first process's; the others write nothing
    say: Say
    shards: str = ""  # what tells them from others
    scored: bool = True  # whether there are held-out documents to look at
    teacher: Network | None = None
    answers: Answers | None = None  # of the teacher, kept on disk
    asked: Sequence[int] = ()  # signals that ask to stop, as they arrive

    @property
    def made(self) -> Callable[[Network], Objective]:
        """What a network is trained by."""
        if self.teacher is not None:
            config, answers = self.recipe.distill, self.answers
            return partial(Pupil, teacher=self.teacher, config=config, answers=answers, say=self.note)
        return partial(Dialled, terms=self.terms) if self.recipe.dial.depths else Objective

    @property
    def terms(self) -> list[Term]:
        """Losses beside those of masked pieces and pairs; what a phase says of pairs is not in their weights yet."""
        pairs = 0.0 if self.recipe.data.objective == "mlm" else 1.0
        return [*distill.terms(self.recipe.distill), *dial.terms(self.recipe.dial, pairs)]

    def note(self, text: str) -> None:
        self.say({"kind": "note", "text": text})

    def tell(self, line: dict[str, Any]) -> None:
        if self.run is not None and line["kind"] != "note":
            self.run.log(line)
        self.say(line)
