"""Filling masks: the head's own probabilities, and one line where it cannot be done."""

import pytest
import torch

from litebert.config import HeadConfig, UserError
from litebert.infer.fill import fill_many
from litebert.infer.model import Model
from litebert.model.weights import build
from tests.corpus.conftest import tokenizer

__all__ = ["tokenizer"]


@pytest.fixture
def model(tokenizer, small):
    made = tokenizer("unigram", "en")
    config = small(vocab_size=len(made) + 4, positions=64)  # a table wider than the tokenizer, as published ones are
    return Model(network=build(config, [HeadConfig(kind="mlm")], seed=1), tokenizer=made)


def test_guesses_are_the_heads_own_probabilities_without_specials(model):
    guesses = model.fill("The [MASK] was [MASK].", top=7)
    assert [len(each) for each in guesses] == [7, 7]
    tokenizer = model.tokenizer
    ids = tokenizer.encode("The [MASK] was [MASK]").input_ids[:-1] + tokenizer.encode("x.").input_ids[-2:]
    logits = model.network(torch.tensor([ids]))["mlm"][0]
    place = ids.index(tokenizer.mask_id)
    allowed = [index for index in range(len(tokenizer)) if index not in tokenizer.special_ids]
    chances = torch.zeros(len(tokenizer)).index_put((torch.tensor(allowed),), logits[place][allowed].softmax(-1))
    best = chances.topk(7)
    assert [guess.piece for guess in guesses[0]] == [tokenizer.piece(index) for index in best.indices.tolist()]
    assert [guess.probability for guess in guesses[0]] == pytest.approx(best.values.tolist(), rel=1e-4)


def test_what_touches_a_mask_continues_its_word(model):
    """A full stop after a mask is the piece that it is after a word."""
    assert model.fill("The [MASK].") != model.fill("The [MASK] .")


def test_many_texts_give_what_each_gives_alone(model, monkeypatch):
    texts = ["The [MASK] was [MASK].", "A [MASK]", "He looked at the [MASK] and went on until he saw a [MASK] there."]
    alone = [model.fill(text, top=3) for text in texts]
    monkeypatch.setattr("litebert.infer.fill.AT_ONCE", 2)
    for most in (4096, 12):  # in one row, in several
        monkeypatch.setattr("litebert.infer.fill.TOGETHER", most)
        for mine, theirs in zip(fill_many(model, texts, 3), alone, strict=True):
            assert [[guess.piece for guess in mask] for mask in mine] == [[g.piece for g in mask] for mask in theirs]
            for one, other in zip(mine, theirs, strict=True):
                assert [g.probability for g in one] == pytest.approx([g.probability for g in other], rel=1e-4)
    with pytest.raises(UserError, match=r"nothing to fill in text 3: write \[MASK\] where a word is missing"):
        fill_many(model, [*texts, "no mask"], 3)


def test_a_list_of_texts_gives_a_list(model):
    texts = ["The [MASK] was [MASK].", "A [MASK]"]
    found = model.fill(texts, top=2)
    assert [[len(mask) for mask in text] for text in found] == [[2, 2], [2]]
    assert found == model.fill(tuple(texts), top=2) == fill_many(model, texts, 2)
    assert model.fill(["A [MASK]"], top=2) == [model.fill("A [MASK]", top=2)]
    assert model.fill([]) == []


def test_passes_are_a_choice(model):
    assert model.fill("The [MASK] fell.") != model.fill("The [MASK] fell.", passes=2)


@pytest.mark.parametrize(
    ("text", "top", "sentence"),
    [
        ("no mask here", 5, r"nothing to fill: write \[MASK\] where a word is missing"),
        ("a [MASK]", 0, "top = 0 must be at least 1"),
        ("a [MASK]", 9999, "top = 9999 must be at least 1 and at most"),
        ("word " * 90 + "[MASK]", 5, "does not fit the model's 64 positions"),
    ],
)
def test_what_cannot_be_filled_is_one_line(model, text, top, sentence):
    with pytest.raises(UserError, match=sentence):
        model.fill(text, top)


def test_a_model_without_the_head_or_the_tokenizer_says_so(model, small):
    with pytest.raises(UserError, match="no masked-LM head"):
        Model(network=build(small()), tokenizer=model.tokenizer).fill("a [MASK]")
    with pytest.raises(UserError, match="no tokenizer beside it"):
        Model(network=model.network).fill("a [MASK]")
