"""Masking: the paper's shares, whole words in any language with any tokenizer, and nothing that is special."""

import numpy as np
import pytest

from litebert.config import MaskConfig, UserError
from litebert.corpus.masking import Vocabulary, mask_batch
from litebert.corpus.random import keys, permutation, uniform

SIZE = 1000
VOCABULARY = Vocabulary(4, np.arange(SIZE) < 5, np.random.default_rng(0).random(SIZE) < 0.7)


def batch(rows=256, width=128, seed=0):
    """Two segments a row: [CLS] … [SEP] … [SEP], the last rows padded."""
    ids = np.random.default_rng(seed).integers(5, SIZE, (rows, width)).astype(np.int32)
    ids[:, 0], ids[:, width // 2], ids[:, -1] = 2, 3, 3
    real = np.ones(ids.shape, dtype=bool)
    real[-rows // 4 :, width - 20 :] = False
    ids[~real] = 0
    return ids, real


def masked(config, rows=256, width=128, rounds=400):
    """At least 100,000 examples, counted."""
    total = {"maskable": 0, "masked": 0, "mask": 0, "random": 0, "same": 0, "spans": np.zeros(config.ngram), "rows": 0}
    for seed in range(rounds):
        ids, real = batch(rows, width, seed % 7)
        found = mask_batch(ids, real, keys(1, seed, np.arange(rows)), VOCABULARY, config)
        shown = found.input_ids.ravel()[found.positions]
        total["maskable"] += int((real & (ids >= 5)).sum())
        total["masked"] += len(found.positions)
        total["mask"] += int((shown == 4).sum())
        total["same"] += int((shown == found.labels).sum())
        total["spans"] += found.spans
        total["rows"] += rows
        assert (found.labels >= 5).all()
        assert real.ravel()[found.positions].all()
        assert (found.labels == ids.ravel()[found.positions]).all()
        rest = np.ones(ids.size, dtype=bool)
        rest[found.positions] = False
        assert (found.input_ids.ravel()[rest] == ids.ravel()[rest]).all()
        assert not (shown[(shown != 4)] < 5).any()
    return total


@pytest.mark.parametrize("unit", ["word", "piece"])
@pytest.mark.parametrize("ngram", [1, 3])
def test_rate_shares_and_fates_over_a_hundred_thousand_examples(unit, ngram):
    total = masked(MaskConfig(unit=unit, ngram=ngram))
    assert total["rows"] >= 100_000
    assert total["masked"] / total["maskable"] == pytest.approx(0.15, abs=0.002)
    assert total["mask"] / total["masked"] == pytest.approx(0.8, abs=0.003)
    assert total["same"] / total["masked"] == pytest.approx(0.1, abs=0.003)
    if ngram == 3:
        shares = total["spans"] / total["spans"].sum()
        assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.005)


def test_longer_spans_follow_the_same_rule():
    total = masked(MaskConfig(ngram=5), width=512, rounds=20)
    share = np.array([1 / n for n in range(1, 6)])
    assert total["spans"] / total["spans"].sum() == pytest.approx((share / share.sum()).tolist(), abs=0.01)
    assert total["masked"] / total["maskable"] == pytest.approx(0.15, abs=0.002)


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.5])
def test_other_rates_are_true_too(rate):
    total = masked(MaskConfig(rate=rate), rounds=20)
    assert total["masked"] / total["maskable"] == pytest.approx(rate, abs=0.004)


def test_fates_are_settings():
    config = MaskConfig(masked=0.5, random=0.5, unit="piece", ngram=1)
    total = masked(config, rounds=40)
    assert total["mask"] / total["masked"] == pytest.approx(0.5, abs=0.01)
    assert total["same"] / total["masked"] < 0.01  # another piece may be the same by chance


def test_a_word_is_masked_whole_or_not_at_all_and_no_span_crosses_a_special():
    ids, real = batch()
    found = mask_batch(ids, real, keys(1, 0, np.arange(len(ids))), VOCABULARY, MaskConfig())
    chosen = np.zeros(ids.size, dtype=bool)
    chosen[found.positions] = True
    chosen = chosen.reshape(ids.shape)
    starts = VOCABULARY.starts_word[ids]
    for row in range(len(ids)):
        for column in range(1, ids.shape[1]):
            inside = ids[row, column] >= 5 and ids[row, column - 1] >= 5 and real[row, column]
            if inside and not starts[row, column]:
                assert chosen[row, column] == chosen[row, column - 1]
    assert not chosen[ids < 5].any()


def test_an_examples_mask_does_not_depend_on_its_batch():
    ids, real = batch()
    key = keys(1, 0, np.arange(len(ids)))
    config = MaskConfig()
    together = mask_batch(ids, real, key, VOCABULARY, config)
    for row in (0, 17, 255):
        alone = mask_batch(ids[row : row + 1], real[row : row + 1], key[row : row + 1], VOCABULARY, config)
        assert (alone.input_ids[0] == together.input_ids[row]).all()
    other = mask_batch(ids, real, keys(1, 1, np.arange(len(ids))), VOCABULARY, config)
    assert (other.input_ids != together.input_ids).any()


@pytest.mark.parametrize("row", [[2, 3], [2, 9, 3], [2, 9, 10, 3, 11, 3], [2, 3, 3]])
def test_tiny_examples_end(row):
    ids = np.array([row], dtype=np.int32)
    rates = []
    for seed in range(2000):
        found = mask_batch(ids, np.ones_like(ids, dtype=bool), keys(seed, np.arange(1)), VOCABULARY, MaskConfig())
        rates.append(len(found.positions))
        assert (found.labels >= 5).all()
    maskable = sum(piece >= 5 for piece in row)
    assert np.mean(rates) <= maskable
    assert (np.mean(rates) > 0) == (maskable > 0)


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        (
            "en",
            "The schoolteacher collected maps, bottles",
            ["The", "schoolteacher", "collected", "maps", ",", "bottles"],
        ),
        ("de", "Größere Städte hatten Straßenbahnen", ["Größere", "Städte", "hatten", "Straßenbahnen"]),
        ("ru", "Учительница попросила детей", ["Учительница", "попросила", "детей"]),
        ("hi", "बच्चों ने मिट्टी", ["बच्चों", "ने", "मिट्टी"]),
    ],
)
def test_words_are_words_in_any_language_with_any_tokenizer(kind, language, text, words, tokenizer):
    tok = tokenizer(kind, language)
    encoding = tok.encode(text)
    found, current = [], ""
    for start, special, (a, b) in zip(encoding.word_starts, encoding.special_mask, encoding.offsets, strict=True):
        if special:
            continue
        if start and current:
            found.append(current)
            current = ""
        current += text[a:b]
    found.append(current)
    if kind == "bpe":  # pieces of one letter's bytes share its place in the text
        assert len(found) == len(words)
    else:
        assert found == words


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"rate": 1.5}, "rate = 1.5 must be a share between 0 and 1"),
        ({"rate": 0}, "rate = 0.0 leaves nothing to predict"),
        ({"masked": 0.8, "random": 0.3}, "masked . random = 1.1 is more than 1"),
        ({"ngram": 0}, "ngram = 0 must be at least 1"),
        ({"unit": "sentence"}, "unit = 'sentence'; allowed: word, piece"),
    ],
)
def test_impossible_settings_are_one_line(values, sentence):
    with pytest.raises(UserError, match=sentence):
        MaskConfig(**values)


def test_a_span_that_finds_no_room_gives_way_to_a_shorter_one():
    """Segments of one word: a span of two or three cannot be placed, and the rate is met with single words."""
    ids = np.array([[2, *([9, 3] * 40)]] * 50, dtype=np.int32)
    config = MaskConfig(ngram=3)
    real = np.ones(ids.shape, dtype=bool)
    counts = [len(mask_batch(ids, real, keys(seed, np.arange(50)), VOCABULARY, config).positions) for seed in range(20)]
    assert np.mean(counts) / (50 * 40) > 0.1


def test_draws_are_uniform_and_differ_by_every_part_of_their_key():
    draws = uniform(keys(3, np.arange(100_000)), 0)
    assert draws.mean() == pytest.approx(0.5, abs=0.005)
    assert np.histogram(draws, 10)[0] == pytest.approx(np.full(10, 10_000), rel=0.05)
    assert len(set(keys(1, 2, np.arange(1000)).tolist()) | set(keys(2, 1, np.arange(1000)).tolist())) == 2000
    assert abs(np.corrcoef(uniform(keys(3, np.arange(10_000)), 0), uniform(keys(3, np.arange(10_000)), 1))[0, 1]) < 0.03


def test_a_permutation_holds_everything_once_and_follows_its_seed():
    order = permutation(1000, 1, 2)
    assert sorted(order.tolist()) == list(range(1000))
    assert (order == permutation(1000, 1, 2)).all()
    assert (order != permutation(1000, 1, 3)).any()
