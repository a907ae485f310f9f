"""Examples: what each layout holds, labels that are exactly half, and statistics over a hundred thousand of them.

Layouts are checked on a corpus in which every piece has an id of its own, so an example says where it comes from.
"""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from litebert.config import ExampleConfig, MaskConfig, UserError
from litebert.corpus.batches import Stream
from litebert.corpus.examples import Examples
from litebert.corpus.inspect import histogram, run_lengths
from litebert.corpus.shards import MANIFEST, Corpus, shard_bytes

FIRST = 5  # specials: pad 0, unk 1, cls 2, sep 3, mask 4


class Pieces:
    """A tokenizer without text: every id starts a word."""

    pad_id, unk_id, cls_id, sep_id, mask_id = range(5)
    special_ids = frozenset(range(5))
    checksum, kind = "none", "unigram"

    def __init__(self, size=60_000, double_separator=False):
        self.size, self.double_separator = size, double_separator
        self.word_start_table = np.ones(size, dtype=bool)

    def __len__(self):
        return self.size


@pytest.fixture
def unique(tmp_path):
    """unique([[3, 4], [5]]): two documents, of two sentences and of one; pieces are numbered through the corpus."""

    def make(documents, shards=1, double_separator=False):
        at, blocks, origin = FIRST, [], []
        groups = np.array_split(np.arange(len(documents)), shards)
        for number, group in enumerate(groups):
            ids, lengths, counts = [], [], []
            for document in group:
                counts.append(len(documents[document]))
                for sentence, length in enumerate(documents[document]):
                    ids += range(at, at + length)
                    origin += [(int(document), sentence)] * length
                    lengths.append(length)
                    at += length
            content = shard_bytes(np.array(ids), np.array(lengths), np.array(counts), 60_000)
            (tmp_path / f"{number}.shard").write_bytes(content)
            row = {"file": f"{number}.shard", "documents": len(counts), "sentences": len(lengths), "pieces": len(ids)}
            row["sha256"] = hashlib.sha256(content).hexdigest()
            blocks.append({"train": row, "held-out": None, "counts": {}})
        manifest = {"format": 1, "tokenizer": {"sha256": "none", "vocab_size": 60_000}, "counts": {}, "blocks": blocks}
        (tmp_path / MANIFEST).write_text(json.dumps(manifest))
        return Corpus(tmp_path), Pieces(double_separator=double_separator), origin

    return make


def plain(batch):
    """The examples as they were before masking, without padding."""
    ids = batch.input_ids.copy()
    ids.ravel()[batch.positions] = batch.labels
    return [row[:length].tolist() for row, length in zip(ids, batch.lengths.tolist(), strict=True)]


def everything(examples, epoch=0):
    return examples.batch(epoch, np.arange(len(examples.epoch(epoch))))


def halves(row):
    assert row[0] == 2
    assert row[-1] == 3
    cut = row.index(3)
    return row[1:cut], row[cut + 1 : -1]


def draw_documents(count=60, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(1, 12, rng.integers(1, 30)).tolist() for _ in range(count)]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("layout", ["segment-pair", "sentence-pair"])
def test_order_pairs_are_neighbours_of_one_document_and_half_are_swapped(layout, shards, unique):
    corpus, pieces, origin = unique(draw_documents(), shards)
    examples = Examples(corpus, pieces, ExampleConfig(layout=layout, length=64), seed=1)
    batch = everything(examples)
    assert abs(batch.pair_labels.sum() - len(batch.pair_labels) / 2) <= 0.5
    for row, label, types in zip(plain(batch), batch.pair_labels, batch.token_type_ids, strict=True):
        a, b = halves(row)
        assert a
        assert b
        assert types[: len(row)].tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1)
        first, second = (b, a) if label else (a, b)
        for segment in (first, second):
            assert segment == list(range(segment[0], segment[0] + len(segment)))  # contiguous text
        assert first[-1] < second[0]
        assert len({origin[piece - FIRST][0] for piece in row if piece >= FIRST}) == 1  # one document
        assert label or first[-1] + 1 == second[0]  # in order, nothing is missing where they meet
        if layout == "sentence-pair":
            assert len({origin[piece - FIRST] for piece in a}) == len({origin[piece - FIRST] for piece in b}) == 1
        assert len(row) <= 64


def test_next_sentence_negatives_come_from_another_document(unique):
    corpus, pieces, origin = unique(draw_documents(), 3)
    examples = Examples(corpus, pieces, ExampleConfig(objective="nsp", length=64), seed=1)
    for epoch in range(5):
        batch = everything(examples, epoch)
        assert abs(batch.pair_labels.sum() - len(batch.pair_labels) / 2) <= 0.5
        for row, label in zip(plain(batch), batch.pair_labels, strict=True):
            a, b = halves(row)
            (left,), (right,) = ({origin[piece - FIRST][0] for piece in half} for half in (a, b))
            assert (left != right) == bool(label)
            assert label or a[-1] < b[0]
            assert len(row) <= 64


@pytest.mark.parametrize("layout", ["segment-pair", "sentence-pair"])
def test_the_length_of_a_next_sentence_pair_tells_nothing_of_its_label(layout, unique):
    corpus, pieces, origin = unique([np.random.default_rng(i).integers(3, 30, 60).tolist() for i in range(40)])
    examples = Examples(corpus, pieces, ExampleConfig(layout=layout, objective="nsp", length=128), seed=1)
    sizes = {0: [], 1: []}
    for epoch in range(6):
        batch = everything(examples, epoch)
        for row, label in zip(plain(batch), batch.pair_labels, strict=True):
            _, b = halves(row)
            sizes[int(label)].append(len(b))
            if layout == "sentence-pair":
                assert len({origin[piece - FIRST] for piece in b}) == 1
    bins = [0, 5, 10, 20, 30, 50, 70, 100, 200]
    shares = [np.histogram(sizes[label], bins)[0] / len(sizes[label]) for label in (0, 1)]
    best = 0.5 + 0.25 * np.abs(shares[0] - shares[1]).sum()  # what a reader of that length alone could score
    assert best < 0.56
    assert np.mean(sizes[0]) == pytest.approx(np.mean(sizes[1]), rel=0.08)


def test_what_an_example_holds_and_what_is_masked_in_it_are_drawn_apart(unique):
    corpus, pieces, _ = unique([[4] * 400 for _ in range(20)])
    config = ExampleConfig(length=128, short_rate=0.0, mask=MaskConfig(unit="piece", ngram=1))
    examples = Examples(corpus, pieces, config, seed=1)
    cuts, masked = [], []
    for epoch in range(12):
        batch = everything(examples, epoch)
        full = batch.lengths == 128
        cuts += [row.index(3) for row, whole in zip(plain(batch), full, strict=True) if whole]
        hit = np.zeros(batch.input_ids.size, dtype=bool)
        hit[batch.positions] = True
        masked.append(hit.reshape(batch.input_ids.shape)[full])
    masked = np.concatenate(masked)
    early = np.array(cuts) <= np.quantile(cuts, 0.15)
    rates = masked[early][:, 80:120].mean(0)
    assert np.abs(rates - 0.15).max() < 0.08


def test_the_coin_of_a_label_falls_anew_each_epoch(unique):
    corpus, pieces, _ = unique([[3] * 40 for _ in range(20)])
    examples = Examples(corpus, pieces, ExampleConfig(layout="sentence-pair", length=64), seed=1)
    sides = []
    for epoch in range(2):
        plan, batch = examples.epoch(epoch), everything(examples, epoch)
        sides.append(batch.pair_labels[np.argsort(plan.number)])
    assert 0.3 < (sides[0] == sides[1]).mean() < 0.7


def test_cuts_fall_at_the_outer_ends_whatever_the_order(unique):
    """Both kinds of example look the same: the first text lost its front, the second its back."""
    corpus, pieces, _ = unique([[40, 40] for _ in range(300)])
    batch = everything(Examples(corpus, pieces, ExampleConfig(length=64, short_rate=0.0), seed=1))
    for row, label in zip(plain(batch), batch.pair_labels, strict=True):
        a, b = halves(row)
        assert abs(len(a) - len(b)) <= 1
        before = [(piece - FIRST) % 80 for piece in (a[0], a[-1], b[0], b[-1])]
        assert (before[1] + 1) % 40 == 0  # a sentence ends
        assert before[2] % 40 == 0  # and another begins
        assert before[0] % 40 > 0
        assert (before[3] + 1) % 40 > 0
        assert (a[0] > b[0]) == bool(label)


def test_pairs_cut_anywhere_are_whole_and_their_ends_tell_nothing(unique):
    """One text goes on where the other ended, and the four ends are a sentence's about as rarely in both orders."""
    corpus, pieces, _ = unique([[20, 20, 20, 20, 20] for _ in range(590)])
    batch = everything(Examples(corpus, pieces, ExampleConfig(length=64, short_rate=0.0, anywhere=1.0), seed=1))
    ends = {0: np.zeros(4), 1: np.zeros(4)}
    for row, label in zip(plain(batch), batch.pair_labels, strict=True):
        a, b = halves(row)
        early, late = (b, a) if label else (a, b)
        assert [*early, *late] == list(range(early[0], early[0] + len(a) + len(b)))
        ends[label] += [
            (piece - FIRST) % 20 == place for piece, place in zip((a[0], a[-1], b[0], b[-1]), (0, 19) * 2, strict=True)
        ]
    for label in (0, 1):
        assert np.allclose(ends[label] / (len(batch.lengths) / 2), 1 / 20, atol=0.05)


def test_twins_differ_by_their_order_and_their_masks_alone(unique):
    corpus, pieces, _ = unique([[20, 20, 20, 20] for _ in range(100)])
    plain_config = ExampleConfig(length=64, short_rate=0.0, mask=MaskConfig(unit="piece", ngram=1))
    examples = Examples(corpus, pieces, replace(plain_config, twins=True), seed=1)
    once = len(Examples(corpus, pieces, plain_config, seed=1).epoch(0))
    assert len(examples.epoch(0)) == 2 * once
    batch = everything(examples)
    rows, labels = plain(batch), batch.pair_labels
    masked = {row: set() for row in range(len(rows))}
    width = batch.input_ids.shape[1]
    for place in batch.positions:
        masked[place // width].add(rows[place // width][place % width])
    for first in range(0, len(rows), 2):
        assert labels[first] == 0
        assert labels[first + 1] == 1
        (a, b), (c, d) = halves(rows[first]), halves(rows[first + 1])
        assert set(a) & set(d)  # the earlier text stands first, then second
        assert set(b) & set(c)
        assert not set(a) & set(c)
    assert any(masked[row] != masked[row + 1] for row in range(0, len(rows), 2))


def test_a_share_of_the_pairs_is_cut_anywhere(unique):
    corpus, pieces, _ = unique([[20, 20, 20] for _ in range(990)])
    batch = everything(Examples(corpus, pieces, ExampleConfig(length=64, short_rate=0.0, anywhere=0.25), seed=1))
    apart = [(halves(row)[1][0] - FIRST) % 20 > 0 for row in plain(batch)]
    assert abs(np.mean(apart) - 0.25 * 19 / 20) < 0.05
    with pytest.raises(UserError, match="anywhere"):
        ExampleConfig(objective="nsp", anywhere=0.5)


def test_a_long_sentence_is_seen_through_windows_that_move(unique):
    corpus, pieces, _ = unique([[200], [200]])
    config = ExampleConfig(layout="doc-sentences", objective="mlm", length=64)
    examples = Examples(corpus, pieces, config, seed=1)
    starts = {row[1] for epoch in range(20) for row in plain(everything(examples, epoch))}
    assert len(starts) > 10


def test_borders_of_full_sentences_move_from_epoch_to_epoch(unique):
    corpus, pieces, _ = unique(draw_documents())
    config = ExampleConfig(layout="full-sentences", objective="mlm", length=64)
    examples = Examples(corpus, pieces, config, seed=1)
    firsts = [{row[1] for row in plain(everything(examples, epoch))} for epoch in range(2)]
    assert len(firsts[0] & firsts[1]) < len(firsts[0])


def test_full_sentences_cross_documents_with_a_separator_and_hold_whole_sentences(unique):
    corpus, pieces, origin = unique(draw_documents())
    examples = Examples(corpus, pieces, ExampleConfig(layout="full-sentences", objective="mlm", length=64), seed=1)
    batch = everything(examples)
    assert batch.pair_labels is None
    seen, crossed = [], 0
    for row in plain(batch):
        assert row[0] == 2
        assert row[-1] == 3
        assert len(row) <= 64
        inner = row[1:-1]
        for before, piece, after in zip(inner, inner[1:], inner[2:], strict=False):
            if piece == 3:
                assert origin[before - FIRST][0] + 1 == origin[after - FIRST][0]
                crossed += 1
            elif before != 3:
                assert origin[before - FIRST][0] == origin[piece - FIRST][0]
        text = [piece for piece in inner if piece != 3]
        seen += text
        edges = {origin[text[0] - FIRST], origin[text[-1] - FIRST]}
        for edge in edges:
            assert sum(origin[piece - FIRST] == edge for piece in text) == origin.count(edge)
    assert sorted(seen) == list(range(FIRST, FIRST + len(origin)))  # every piece once
    assert crossed > 20


def test_doc_sentences_stay_in_their_document(unique):
    corpus, pieces, origin = unique(draw_documents())
    config = ExampleConfig(layout="doc-sentences", objective="mlm", length=64, short_rate=0.0)
    batch = everything(Examples(corpus, pieces, config, seed=1))
    seen = []
    for row in plain(batch):
        text = row[1:-1]
        assert 3 not in text
        assert len({origin[piece - FIRST][0] for piece in text}) == 1
        seen += text
    assert sorted(seen) == list(range(FIRST, FIRST + len(origin)))


@pytest.mark.parametrize("layout", ["segment-pair", "sentence-pair", "full-sentences", "doc-sentences"])
def test_every_sentence_of_a_document_that_can_make_an_example_is_reachable(layout, unique):
    documents = [*draw_documents(40), [1], [90, 1], [1, 90], [90, 90, 90], [1, 1]]
    corpus, pieces, origin = unique(documents, 2)
    objective = "sop" if layout.endswith("pair") else "mlm"
    examples = Examples(corpus, pieces, ExampleConfig(layout=layout, objective=objective, length=64), seed=1)
    seen = set()
    for epoch in range(40):
        seen |= {origin[piece - FIRST] for row in plain(everything(examples, epoch)) for piece in row if piece >= FIRST}
    pairs = layout.endswith("pair")
    wanted = {place for place in origin if not pairs or len(documents[place[0]]) > 1}
    assert seen == wanted
    alone = sum(len(document) == 1 for document in documents)
    assert examples.unusable == (alone if pairs else 0)
    assert alone > 0


def test_short_examples_come_at_their_rate(unique):
    corpus, pieces, _ = unique([[5] * 2000, [5] * 2000])
    lengths = {}
    for rate in (0.0, 0.3):
        examples = Examples(corpus, pieces, ExampleConfig(length=128, short_rate=rate), seed=1)
        rows = np.concatenate([everything(examples, epoch).lengths for epoch in range(8)])
        lengths[rate] = float((rows < 110).mean())
    assert lengths[0.0] < 0.02
    assert 0.2 < lengths[0.3] < 0.35


@pytest.mark.parametrize("objective", ["sop", "nsp", "mlm"])
def test_robertas_pairs_have_two_separators_between(objective, unique):
    corpus, pieces, _ = unique(draw_documents(), double_separator=True)
    batch = everything(Examples(corpus, pieces, ExampleConfig(objective=objective, length=64), seed=1))
    assert (batch.pair_labels is None) == (objective == "mlm")
    for row in plain(batch):
        cut = row.index(3)
        assert row[cut : cut + 2] == [3, 3]
        assert row.count(3) == 3
    assert not batch.token_type_ids.any()  # RoBERTa has one token type
    for row in plain(batch):
        assert len(row) <= 64


def test_masks_are_fresh_each_epoch_or_come_round_when_static(unique):
    corpus, pieces, _ = unique(draw_documents())
    dynamic = Examples(corpus, pieces, ExampleConfig(length=64), seed=1)
    static = Examples(corpus, pieces, ExampleConfig(length=64, static_copies=2), seed=1)

    def masks(examples, epoch):
        batch = everything(examples, epoch)
        rows = zip(plain(batch), batch.input_ids, batch.lengths, strict=True)
        return {(tuple(text), tuple(row[:length].tolist())) for text, row, length in rows}

    assert masks(static, 0) == masks(static, 2) != masks(static, 1)
    assert masks(dynamic, 0) != masks(dynamic, 2)
    order = [plain(everything(static, epoch))[0] for epoch in (0, 2)]
    assert order[0] != order[1]  # the order is new all the same


def test_an_example_is_a_function_of_seed_epoch_and_index(unique):
    corpus, pieces, _ = unique(draw_documents(), 2)
    config = ExampleConfig(length=64)
    one, two = Examples(corpus, pieces, config, seed=1), Examples(corpus, pieces, config, seed=1)
    index = [3, 14, 15, 9]
    together = one.batch(2, index)
    for row, each in enumerate(index):
        alone = two.batch(2, [each])
        length = alone.lengths[0]
        assert length == together.lengths[row]
        assert (alone.input_ids[0, :length] == together.input_ids[row, :length]).all()
        assert alone.pair_labels[0] == together.pair_labels[row]
    assert plain(one.batch(3, index)) != plain(together)
    other = Examples(corpus, pieces, config, seed=2)
    assert plain(other.batch(2, index)) != plain(together)


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "bpe"])
@pytest.mark.parametrize("language", ["en", "de", "ru", "hi"])
def test_statistics_hold_for_every_tokenizer_and_language(kind, language, corpus, tokenizer):
    """More than 100,000 examples, the twelve together; tolerances as stated."""
    stream = Stream(str(corpus(kind, language, 120)), ExampleConfig(length=256), 512)
    examples = stream.examples()
    special = examples.vocabulary.special
    total = {"maskable": 0, "masked": 0, "mask": 0, "same": 0, "ones": 0, "rows": 0, "spans": np.zeros(3)}
    epoch = 0
    while total["rows"] < 9_000:
        batch = everything(examples, epoch)
        shown = batch.input_ids.ravel()[batch.positions]
        original = np.concatenate([np.array(row) for row in plain(batch)])
        total["maskable"] += int((~special[original]).sum())
        total["masked"] += len(batch.positions)
        total["mask"] += int((shown == examples.vocabulary.mask_id).sum())
        total["same"] += int((shown == batch.labels).sum())
        total["ones"] += int(batch.pair_labels.sum())
        total["rows"] += len(batch.lengths)
        total["spans"] += batch.spans
        assert not special[batch.labels].any()
        epoch += 1
    assert total["ones"] / total["rows"] == pytest.approx(0.5, abs=0.005)
    assert total["masked"] / total["maskable"] == pytest.approx(0.15, abs=0.002)
    assert total["mask"] / total["masked"] == pytest.approx(0.8, abs=0.01)
    assert total["same"] / total["masked"] == pytest.approx(0.1, abs=0.01)


def test_span_shares_hold_on_real_words(corpus):
    """p(n) ∝ 1/n: on examples long enough for their budgets to be more than a span or two."""
    stream = Stream(str(corpus("unigram", "en", 300)), ExampleConfig(length=512), 64)
    examples = stream.examples()
    spans = sum(everything(examples, epoch).spans for epoch in range(30))
    assert spans / spans.sum() == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.01)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"layout": "full-sentences"}, "objective = 'sop' needs pairs; layout 'full-sentences' has none"),
        ({"length": 4}, "length = 4 must be at least 8"),
        ({"short_rate": 2}, "short_rate = 2.0 must be a share between 0 and 1"),
        ({"objective": "mlmm"}, "objective = 'mlmm'; did you mean 'mlm'?"),
    ],
)
def test_impossible_settings_are_one_line(values, sentence):
    with pytest.raises(UserError) as problem:
        ExampleConfig(**values)
    assert str(problem.value) == sentence


def test_a_corpus_that_cannot_make_pairs_says_so(unique):
    corpus, pieces, _ = unique([[5], [6]])
    with pytest.raises(UserError, match="no document of this corpus has two sentences"):
        Examples(corpus, pieces, ExampleConfig(), seed=0)
    corpus, pieces, _ = unique([[5, 6, 7]])
    with pytest.raises(UserError, match="next-sentence negatives come from another document"):
        Examples(corpus, pieces, ExampleConfig(objective="nsp"), seed=0)


def test_mask_settings_reach_the_examples(unique):
    corpus, pieces, _ = unique(draw_documents())
    base = ExampleConfig(length=64)
    counts = {}
    for rate in (0.15, 0.4):
        examples = Examples(corpus, pieces, replace(base, mask=MaskConfig(rate=rate)), seed=1)
        counts[rate] = len(everything(examples).positions)
    assert counts[0.4] > 2 * counts[0.15]


def test_figures_for_looking_are_right():
    assert run_lengths(np.array([3, 4, 5, 9, 11, 12])) == [3, 1, 2]
    assert run_lengths(np.array([], dtype=np.int64)) == []
    bins = histogram([1, 16, 17, 128], 128)
    assert {name: count for name, count in bins.items() if count} == {"1-16": 2, "17-32": 1, "113-128": 1}
    assert len(bins) == 8
