"""`litebert demo`: from the novels that ship with the package to a small pre-trained ALBERT that fills a mask; then the
ALBERT that ships, taught to tell their authors apart."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from litebert.ablate.tasks import AUTHORS, trial
from litebert.config import PRESETS, UserError
from litebert.corpus.batches import START, Stream, take
from litebert.corpus.build import BuildOptions, build
from litebert.corpus.engines import Local
from litebert.corpus.inspect import show
from litebert.corpus.read import Bad, find_sources, read_documents
from litebert.infer.model import SHIPPED, Model, load
from litebert.model.weights import OURS
from litebert.recipe import Recipe, TuneConfig, TuneRecipe, load_recipe
from litebert.text.tokenizer import Tokenizer
from litebert.text.train import TrainSettings, train_tokenizer
from litebert.train.finetune import finetune
from litebert.train.pretrain import pretrain
from litebert.train.processes import joined

FAMILY = tuple(name for name in PRESETS if not name.endswith(("-v1", "-v2")))
SENTENCE = "He looked at her for a moment, and then he [MASK] away."
SENTENCES = (  # not theirs: in the manner of Austen, London and Carroll
    "Mr. Darcy was not so agreeable as his friend, and Elizabeth had no wish to be pleased by him.",
    "The dogs lay in the snow beside the sled, and the cold of the North bit through their fur.",
    "Alice thought this was the most curious thing she had ever heard a mushroom say.",
)
LESSON = TuneConfig(epochs=1, batch=8, rate=1e-4, passes=3, keep=0)  # a quarter of its depth: it is a CPU
Say = Callable[[str], object]


def run_demo(say: Say, steps: int | None = None, tune_steps: int = 0, to: Path | None = None) -> dict[str, Any]:
    """Both halves; what they print, as figures. The fine-tuned model stays in `to`."""
    if to is not None and to.exists() and not (to / OURS).is_file():
        raise UserError(f"{to} is there and holds no model; choose another folder")
    return pretrain_small(say, steps) | teach_shipped(say, tune_steps, to)


def pretrain_small(say: Say, steps: int | None) -> dict[str, Any]:
    """What the small model scores on text it has not seen, before and after; raises if it learned nothing."""
    recipe = load_recipe("cpu-demo", [f"run.steps={steps}"] if steps else [])
    with tempfile.TemporaryDirectory() as folder:
        shards, run = Path(folder) / "shards", Path(folder) / "run"
        tokenizer = text_to_shards(recipe.model.vocab_size, shards, say)
        show_example(shards, recipe, tokenizer, say)
        say(f"pre-training {recipe.run.steps:,} steps on this machine's CPU:")
        looks = train(recipe, shards, run, say)
        guesses = load(run).fill(SENTENCE)[0]
    say(SENTENCE)
    say(f"  {', '.join(f'{each.text} {100 * each.probability:.0f} %' for each in guesses)}")
    before, after = (looks[at]["protocol"]["masked_accuracy"] for at in (0, -1))
    if not after > before:
        raise UserError("training did not raise the held-out accuracy; please report this with your torch version")
    return {"held_out": [look["protocol"] for look in looks], "fill": [each.text for each in guesses]}


def teach_shipped(say: Say, steps: int, to: Path | None) -> dict[str, Any]:
    """What the model that ships learns of ten authors from 2,000 sentences, and its answers to three more."""
    say(f"{SHIPPED}, the ALBERT that comes with litebert (litebert fill asks it):")
    guesses = load(SHIPPED).fill(SENTENCE)[0]
    say(f"  {', '.join(f'{each.text} {100 * each.probability:.0f} %' for each in guesses)}")
    say("fine-tuning it to tell ten authors by a sentence, with 3 passes of its shared layer:")

    def tell(line: dict[str, Any]) -> None:
        if line["kind"] == "tune":
            say(f"  step {line['step']:3} of {line['steps']}: loss {line['loss']:.2f}")

    with tempfile.TemporaryDirectory() as folder, joined("cpu") as processes:
        recipe = TuneRecipe(model=SHIPPED, task=trial(AUTHORS, Path()).task, tune=replace(LESSON, steps=steps))
        found = finetune(recipe, Path(folder) / "run", False, processes, tell)
        model = load(Path(folder) / "run")
    (score, *_) = found["scores"]
    say(f"  {100 * score['value']:.1f} ± {100 * score['error']:.1f} % of 400 unseen sentences right; by chance 10 %")
    if to is not None:
        model.save(to)
        say(f"  it is in {to}")
    return {"authors": score, "answers": answers(model, say)}


def answers(model: Model, say: Say) -> list[str]:
    told = model.classify(SENTENCES)
    for sentence, each in zip(SENTENCES, told, strict=True):
        say(f"  {each.value} ({100 * (each.probability or 0):.0f} %): {sentence}")
    return [str(each.value) for each in told]


def text_to_shards(vocab_size: int, shards: Path, say: Say) -> Tokenizer:
    with resources.as_file(resources.files("litebert") / "data" / "books.txt.xz") as books:
        texts = read_documents(find_sources([books]), "text", Bad())
        tokenizer, counts = train_tokenizer(texts, TrainSettings(vocab_size=vocab_size))
        say(f"a tokenizer of {len(tokenizer):,} pieces from {counts.sentences:,} lines of ten novels")
        manifest = build([books], tokenizer, shards, BuildOptions(), Local(1))
    say(f"shards of {manifest['counts']['documents']} documents, {manifest['counts']['pieces']:,} pieces")
    return tokenizer


def show_example(shards: Path, recipe: Recipe, tokenizer: Tokenizer, say: Say) -> None:
    stream = Stream(str(shards), recipe.examples(recipe.phases[0]), 16)
    batch, _ = take(stream.examples(), stream, START)
    text = "".join(f"[{each.piece}]" if each.predicted else each.piece for each in show(batch, 0, tokenizer))
    say(f"the first example, what is to be predicted in brackets:\n  {text.replace('▁', ' ').strip()}")


def train(recipe: Recipe, shards: Path, run: Path, say: Say) -> list[dict[str, Any]]:
    """The run, told briefly; returns its looks at the held-out text."""
    looks: list[dict[str, Any]] = []

    def tell(line: dict[str, Any]) -> None:
        if line["kind"] in ("held-out", "final"):
            looks.append(line)
            found = line["protocol"]
            accuracy = f"{100 * found['masked_accuracy']:.1f} ± {100 * found['masked_accuracy_error']:.1f} %"
            bits = f"{found['bits_per_character']:.2f} bits a character"
            say(f"  step {line['step']:5,}: {accuracy} of the masked pieces of unseen text right, {bits}")

    chosen = replace(recipe, data=replace(recipe.data, shards=str(shards)))
    with joined("cpu") as processes:
        pretrain(chosen, run, False, processes, tell)
    return looks
