"""Embedding: each vector is what the hidden states say it is, and a file of them is whole, in order and never held."""

import json
import weakref
from itertools import pairwise

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from litebert.cli import app
from litebert.config import HeadConfig, Reading, UserError
from litebert.infer import embed as module
from litebert.infer.embed import embed_examples, embed_file, embedder
from litebert.infer.model import Model
from litebert.model.weights import build
from litebert.tasks.example import Example, Task
from litebert.tasks.taught import Taught
from tests.corpus.conftest import tokenizer

__all__ = ["tokenizer"]

KINDS = {"albert": "unigram", "bert": "wordpiece", "roberta": "bpe", "distilbert": "wordpiece"}
TEXTS = [
    "Rain fell for three days.",
    "A letter",
    "Nobody in the village remembered when the lighthouse had last been painted.",
    "Mr. Hale walked home slowly because his shoes were new.",
    "Spring came early that year",
]
PAIRS = list(pairwise(TEXTS))
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture
def make(tokenizer, small):
    """make('bert'): a model of that family with fresh weights and a tokenizer of its kind."""

    def made(family="albert", **more):
        pieces = tokenizer(KINDS[family], "en")
        config = small(family, **{"vocab_size": len(pieces), "positions": 128, "pad_id": pieces.pad_id} | more)
        return Model(network=build(config, seed=1), tokenizer=pieces)

    return made


def padded(model, texts, max_length=None, passes=None):
    """By hand: hidden states of a padded batch, and which pieces are text."""
    rows = [
        model.tokenizer.encode(*((each,) if isinstance(each, str) else each), max_length=max_length) for each in texts
    ]
    width = max(len(row.input_ids) for row in rows)
    ids, types, mask, text = (torch.zeros(len(rows), width, dtype=torch.long) for _ in range(4))
    ids += model.config.pad_id
    for at, row in enumerate(rows):
        size = len(row.input_ids)
        ids[at, :size], types[at, :size] = torch.tensor(row.input_ids), torch.tensor(row.token_type_ids)
        mask[at, :size], text[at, :size] = 1, 1 - torch.tensor(row.special_mask).long()
    types = types if model.config.token_types > 1 else None
    with torch.no_grad():
        return model.network.eval().encoder.hidden_states(ids, mask, types, passes=passes), text[:, :, None]


def mean(states, text):
    return ((states * text).sum(1) / text.sum(1)).numpy()


@pytest.mark.parametrize("family", KINDS)
@pytest.mark.parametrize("texts", [TEXTS, PAIRS], ids=["texts", "pairs"])
def test_the_mean_is_that_of_the_real_pieces_without_specials(make, family, texts):
    model = make(family)
    states, text = padded(model, texts)
    found = model.embed(texts)
    assert (found.shape, found.dtype) == ((len(texts), 32), np.float32)
    np.testing.assert_allclose(found, mean(states[-1], text), **CLOSE)
    with_specials = mean(states[-1], torch.ones_like(text))
    assert np.abs(found - with_specials).max() > 0.01


def test_first_and_pooler_read_the_first_piece(make):
    model = make("bert")
    states, _ = padded(model, TEXTS)
    np.testing.assert_allclose(model.embed(TEXTS, "first"), states[-1][:, 0].numpy(), **CLOSE)
    pooled = model.encoder.pool(states[-1]).detach().numpy()
    np.testing.assert_allclose(model.embed(TEXTS, pool="pooler"), pooled, **CLOSE)


@pytest.mark.parametrize("pool", ["mean", "first", "pooler"])
def test_a_vector_does_not_depend_on_its_neighbours(make, pool, monkeypatch):
    model = make()
    together = model.embed(TEXTS, pool)
    np.testing.assert_allclose(np.concatenate([model.embed([text], pool) for text in TEXTS]), together, **CLOSE)
    np.testing.assert_allclose(model.embed(TEXTS[::-1], pool)[::-1], together, **CLOSE)
    monkeypatch.setitem(module.PIECES, "cpu", 40)  # several batches
    np.testing.assert_allclose(model.embed(TEXTS, pool), together, **CLOSE)


def test_layers_are_put_side_by_side_or_summed(make):
    model = make("bert")
    states, text = padded(model, TEXTS)
    by_hand = [mean(each, text) for each in states]
    assert len(by_hand) == 5
    for said, parts in {
        "concat4": (1, 2, 3, 4),
        "concat2": (3, 4),
        "0,4": (0, 4),
        "3,1": (3, 1),
        "-1,-2": (4, 3),
        "0": (0,),
        "last": (4,),
    }.items():
        found = np.concatenate([by_hand[part] for part in parts], axis=1)
        np.testing.assert_allclose(model.embed(TEXTS, layers=said), found, **CLOSE, err_msg=said)
    for said, parts in {"sum2": (3, 4), "all-sum": (1, 2, 3, 4)}.items():
        found = sum(by_hand[part] for part in parts)
        np.testing.assert_allclose(model.embed(TEXTS, layers=said), found, rtol=1e-4, atol=1e-4, err_msg=said)
    np.testing.assert_allclose(model.embed(TEXTS, "first", "2"), states[2][:, 0].numpy(), **CLOSE)


def test_passes_decide_how_deep_it_goes(make):
    model = make()
    states, text = padded(model, TEXTS, passes=2)
    np.testing.assert_allclose(model.embed(TEXTS, passes=2), mean(states[-1], text), **CLOSE)
    assert model.embed(TEXTS, layers="concat2", passes=2).shape == (5, 64)
    with pytest.raises(UserError, match="layers = '3' of a model with 2 layers"):
        model.embed(TEXTS, layers="3", passes=2)


def test_normalised_vectors_have_length_one_and_their_direction(make):
    model = make()
    plain, unit = (model.embed(TEXTS, layers="concat2", normalise=each) for each in (False, True))
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(unit, plain / np.linalg.norm(plain, axis=1, keepdims=True), **CLOSE)


def test_longer_texts_are_cut_and_counted(make):
    model = make()
    how = embedder(model, length=12)
    examples = [Example(key=text, texts=(text,)) for text in TEXTS]
    (chunk,) = embed_examples(how, examples)
    states, text = padded(model, TEXTS, max_length=12)
    np.testing.assert_allclose(chunk.vectors, mean(states[-1], text), **CLOSE)
    longer = sum(len(model.tokenizer.encode(each).input_ids) > 12 for each in TEXTS)
    assert chunk.cut == longer
    assert 0 < longer < 5
    assert embedder(model).reading.length == 128  # what the model takes
    assert embedder(make(positions=600)).reading.length == 512


def rows_as(path, texts):
    if path.suffix == ".txt":
        path.write_text("".join(f"{text}\n" for text in texts))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    elif path.suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow")
        import pyarrow.parquet

        pyarrow.parquet.write_table(arrow.table({"id": [f"r{n}" for n in range(len(texts))], "text": texts}), path)
    else:
        tab = "\t" if path.suffix == ".tsv" else ","
        path.write_text(f"id{tab}text\n" + "".join(f"r{n}{tab}{text}\n" for n, text in enumerate(texts)))
    return path


def read_vectors(path):
    """Ids (none in .npy) and vectors."""
    if path.suffix == ".parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        table = parquet.read_table(path).to_pydict()
        return table["id"], np.array(table["vector"], dtype=np.float32)
    found = np.load(path)
    return (None, found) if path.suffix == ".npy" else (found["ids"].tolist(), found["vectors"])


@pytest.mark.parametrize("to", [".npy", ".npz", ".parquet"])
@pytest.mark.parametrize("source", [".csv", ".tsv", ".jsonl", ".parquet", ".txt"])
def test_a_file_of_any_kind_becomes_the_same_vectors_in_its_order(make, source, to, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 2)
    model = make()
    texts = rows_as(tmp_path / f"texts{source}", TEXTS)
    target = tmp_path / "deep" / f"vectors{to}"
    written = embed_file(embedder(model), texts, target)
    assert (written.rows, written.width, written.cut) == (5, 32, 0)
    ids, vectors = read_vectors(target)
    np.testing.assert_allclose(vectors, model.embed(TEXTS), **CLOSE)
    if ids is not None:
        own = source not in (".jsonl", ".txt")  # these files have no ids: the rows' numbers stand in
        assert ids == [f"r{n}" if own else str(n + 1) for n in range(5)]
    assert [each.name for each in target.parent.iterdir()] == [target.name]


def test_two_columns_are_a_pair(make, tmp_path):
    model = make("bert")
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"q": q, "a": a}) + "\n" for q, a in PAIRS))
    embed_file(embedder(model), path, tmp_path / "v.npy", ["q", "a"])
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), model.embed(PAIRS), **CLOSE)


def test_a_fine_tuned_model_reads_the_columns_it_was_taught(make, tmp_path):
    """Where the file has them and no others are said; else the usual ones."""
    model = make()
    model.network = build(model.config, [HeadConfig(kind="classify", labels=("a", "b"))], seed=1)
    model.taught = Taught(Task(kind="classify", labels=("a", "b"), texts=("Rezension",)), Reading(length=64))
    model.save(tmp_path / "model")
    rows = [{"id": "r", "text": "Another", "Rezension": text} for text in TEXTS]

    def vectors(rows, *more):
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        words = [
            "embed",
            tmp_path / "model",
            tmp_path / "a.jsonl",
            "--to",
            tmp_path / "v.npy",
            *more,
            "--device",
            "cpu",
        ]
        assert CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False).exit_code == 0
        return np.load(tmp_path / "v.npy")

    np.testing.assert_allclose(vectors(rows), model.embed(TEXTS), **CLOSE)
    np.testing.assert_allclose(vectors(rows, "--text", "text"), model.embed(["Another"] * 5), **CLOSE)
    for row in rows:
        del row["Rezension"]
    np.testing.assert_allclose(vectors(rows), model.embed(["Another"] * 5), **CLOSE)


@pytest.mark.parametrize("to", ["v.npy", "v.npz", "v.parquet"])
def test_no_more_than_a_chunk_is_held(make, to, tmp_path, monkeypatch):
    """Rows are read when those before them are written, and their vectors are let go."""
    monkeypatch.setattr(module, "CHUNK", 3)
    texts = rows_as(tmp_path / "a.txt", TEXTS * 6)
    read, chunks, ahead, alive = 0, [], [], []

    def counting(*given, plain=module.read_texts):
        nonlocal read
        for example in plain(*given):
            read += 1
            yield example

    def watched(*given, plain=module.embed_examples):
        for chunk in plain(*given):
            chunks.append(weakref.ref(chunk.vectors))
            yield chunk
            del chunk

    def tell(rows, cut):
        ahead.append(read - rows)
        alive.append(sum(each() is not None for each in chunks))

    monkeypatch.setattr(module, "read_texts", counting)
    monkeypatch.setattr(module, "embed_examples", watched)
    written = embed_file(embedder(make()), texts, tmp_path / to, tell=tell)
    assert (written.rows, len(chunks)) == (30, 10)
    assert max(ahead) == 0
    assert max(alive) <= 2
    if to.endswith("parquet"):
        parquet = pytest.importorskip("pyarrow.parquet")
        assert parquet.ParquetFile(tmp_path / to).num_row_groups == 10


@pytest.mark.parametrize("to", ["v.npy", "v.npz", "v.parquet"])
def test_a_killed_write_leaves_what_was_there(make, to, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 2)
    texts = rows_as(tmp_path / "a.txt", TEXTS)
    out = tmp_path / "out"

    def killed(rows, cut):
        assert not (out / to).exists(), "the file appears before it is whole"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_file(embedder(make()), texts, out / to, tell=killed)
    assert not list(out.iterdir())
    (out / to).write_bytes(b"before")
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n\nfive\n")
    with pytest.raises(UserError, match="row 4: the line is empty"):
        embed_file(embedder(make()), texts, out / to)
    assert [each.read_bytes() for each in out.iterdir()] == [b"before"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"pool": "max"}, "pool = 'max'; allowed: mean, first, pooler"),
        ({"pool": "pooler", "layers": "1"}, "pool = 'pooler' reads the last layer only, not layers = '1'"),
        ({"layers": "concat5"}, "layers = 'concat5' of a model with 4 layers; allowed: last, concatN and sumN"),
        ({"layers": "0,5"}, "layers = '0,5' of a model with 4 layers"),
        ({"layers": "top"}, "or numbers from 0 (what goes into the first layer) to 4 such as 0,4"),
        ({"length": 129}, "length = 129 does not fit the model's 128 positions; give at most 128"),
        ({"passes": 0}, "passes = 0 must be at least 1"),
    ],
)
def test_what_cannot_be_asked_is_one_line(make, given, sentence):
    with pytest.raises(UserError) as problem:
        make().embed(TEXTS, **given)
    assert sentence in str(problem.value)
    assert "\n" not in str(problem.value)


def test_what_a_model_lacks_is_said(make):
    with pytest.raises(UserError, match="this model has no pooler; use mean or first"):
        make("distilbert").embed(TEXTS, "pooler")
    with pytest.raises(UserError, match="no tokenizer beside it"):
        Model(network=make().network).embed(TEXTS)
    with pytest.raises(UserError, match="texts is a single text; give a list of them"):
        make().embed("a text")
    with pytest.raises(UserError, match="text 1: no piece is left of the text ''; leave it out"):
        make().embed(["a", ""])
    assert make().embed([], layers="concat4").shape == (0, 128)


@pytest.mark.parametrize(
    ("name", "content", "columns", "to", "sentence"),
    [
        ("a.csv", "body\nx\n", [], "v.npy", "row 2: no column 'text'; say which it is by --text: body"),
        ("a.csv", "text\nx\n", ["txet"], "v.npy", "row 2: no column 'txet'; did you mean 'text'?"),
        ("a.csv", "text\n", [], "v.npy", "a.csv holds no text"),
        ("a.txt", "", [], "v.parquet", "a.txt holds no text"),
        ("a.txt", "x\n", ["text"], "v.npy", "is plain text, a line a text: it has no column 'text'"),
        ("a.jsonl", '{"text": 3}\n', [], "v.npy", "row 1: 'text' holds int, not text"),
        ("a.jsonl", '{"text": "\\ud800"}\n', [], "v.npy", "row 1: half a surrogate pair stands there"),
        (
            "a.csv",
            "a,b,c\nx,y,z\n",
            ["a", "b", "c"],
            "v.npy",
            "3 columns of text (a, b, c); give one, or two for pairs",
        ),
        ("a.txt", "x\n", [], "v.csv", "v.csv is of no kind that vectors are written as: .parquet, .npy, .npz"),
        ("a.npy", "x\n", [], "a.npy", "a.npy is the file that is read; give the vectors another name"),
        ("a.txt", "x\n", [], "a.txt/v.npy", "cannot write "),
    ],
)
def test_a_file_that_cannot_be_embedded_is_one_line(make, name, content, columns, to, sentence, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError) as problem:
        embed_file(embedder(make()), tmp_path / name, tmp_path / to, columns)
    assert sentence in str(problem.value)
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_folder_is_not_a_file(make, tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("x\n")
    with pytest.raises(UserError, match="is 2 files; give one of them"):
        embed_file(embedder(make()), tmp_path, tmp_path / "v.npy")
    (tmp_path / "v.npy").mkdir()
    with pytest.raises(UserError, match="is a folder; give the name of a file"):
        embed_file(embedder(make()), tmp_path / "a.txt", tmp_path / "v.npy")


def test_without_pyarrow_the_extra_is_named(make, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    texts = rows_as(tmp_path / "a.txt", TEXTS)
    with pytest.raises(UserError, match=r"pip install 'litebert\[corpus\]', or write \.npy"):
        embed_file(embedder(make()), texts, tmp_path / "v.parquet")
    assert embed_file(embedder(make()), texts, tmp_path / "v.npy").rows == 5


def test_the_command_writes_what_the_model_embeds(make, tmp_path):
    model = make()
    model.save(tmp_path / "model")
    texts = rows_as(tmp_path / "a.csv", TEXTS)
    words = ["embed", tmp_path / "model", texts, "--to", tmp_path / "v.npz", "--layers", "-1,0", "--pool", "first"]
    words += ["--length", "12", "--normalise", "--passes", "3", "--device", "cpu"]
    done = CliRunner().invoke(app, [*map(str, words), "--json"], catch_exceptions=False)
    said = json.loads(done.stdout)
    assert {key: said[key] for key in ("rows", "width", "cut", "layers")} == {
        "rows": 5,
        "width": 64,
        "cut": 4,
        "layers": [3, 0],
    }
    assert "4 of 5 texts are longer than 12 pieces and were cut" in done.stderr
    expected = model.embed(TEXTS, "first", "-1,0", length=12, normalise=True, passes=3)
    np.testing.assert_allclose(np.load(tmp_path / "v.npz")["vectors"], expected, **CLOSE)
    done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert done.stdout.startswith("5 vectors of 64 numbers in ")
