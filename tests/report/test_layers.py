"""How far a layer moves the states: hand-made states, `transformers`' own, and what is drawn."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from litebert.config import UserError
from litebert.infer.look import Row, inside, moves
from litebert.infer.model import Model, load
from litebert.model.weights import build, export_network
from litebert.report.layers import draw_layers, layer_path, plot_layers
from litebert.report.rows import Given, check_same_pieces, given, read_ids, rows_of
from tests.conftest import FAMILIES
from tests.toys import toy_model


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    """toys(family): a model with a tokenizer."""
    made = {}

    def make(family="albert", **more):
        key = family, *more.items()
        if key not in made:
            made[key] = load(toy_model(tmp_path_factory.mktemp("toy"), family, **more))
        return made[key]

    return make


def bare(config, seed=0):
    return Model(network=build(config, (), seed).eval())


def test_a_layer_that_returns_its_input_moves_nothing(small, monkeypatch):
    model = bare(small())
    monkeypatch.setattr(model.encoder.trunk, "states", lambda x, mask, passes: [x, x, 2 * x, -x])
    found = moves(inside(model, Row([5, 6, 7], [0, 0, 0])).states)
    distance, cosine, degrees = (value / found.pieces for value in (found.distance, found.cosine, found.degrees))
    lengths = (found.length / found.pieces).tolist()
    assert distance[0] == 0
    assert cosine.tolist() == pytest.approx([1, 1, -1])
    assert degrees.tolist() == pytest.approx([0, 0, 180], abs=1e-4)
    assert lengths == pytest.approx([lengths[0], lengths[0], 2 * lengths[0], lengths[0]])
    assert distance.tolist() == pytest.approx([0, lengths[0], 3 * lengths[0]])


def test_a_layer_whose_weights_do_nothing_is_a_straight_line(small):
    """Attention and feed-forward that add nothing to what the embeddings' norm gave: the norms change it no more."""
    model = bare(replace(small("bert"), layers=3, norm_eps=1e-12))
    with torch.no_grad():
        for layer in (*model.encoder.trunk.attention, *model.encoder.trunk.ffn):
            (layer.out if hasattr(layer, "out") else layer.down).weight.zero_()
    path = layer_path("m", model, Given(ids="random"))
    assert path.distance == pytest.approx([0] * 3, abs=1e-4)
    assert path.cosine == pytest.approx([1] * 3)
    assert layer_path("m", bare(small("bert")), Given(ids="random")).distance[0] > 0.1


@pytest.mark.parametrize("family", FAMILIES)
def test_the_numbers_are_those_of_transformers_hidden_states(family, small, tmp_path):
    library = pytest.importorskip("transformers")
    model = bare(small(family), seed=1)
    export_network(model.network, tmp_path / "hf")
    peer = library.AutoModel.from_pretrained(tmp_path / "hf").eval()
    rows = [[5, 6, 7, 8, 9, 10, 11], [90, 31, 12]]
    (tmp_path / "ids.json").write_text(json.dumps(rows))
    path = layer_path("m", model, Given(ids=str(tmp_path / "ids.json")))
    before, after = [], []
    for row in rows:
        with torch.no_grad():
            states = torch.cat(peer(input_ids=torch.tensor([row]), output_hidden_states=True).hidden_states)
        assert len(states) == model.config.depth + 1
        before.append(states[:-1])
        after.append(states[1:])
    before, after = torch.cat(before, 1), torch.cat(after, 1)  # every piece of both rows once
    assert path.pieces == before.shape[1]
    assert path.distance == pytest.approx((after - before).norm(dim=-1).mean(1).tolist(), rel=1e-4)
    assert path.cosine == pytest.approx(torch.cosine_similarity(before, after, dim=-1).mean(1).tolist(), rel=1e-4)
    assert path.length[1:] == pytest.approx(after.norm(dim=-1).mean(1).tolist(), rel=1e-4)
    assert path.length[0] == pytest.approx(before[0].norm(dim=-1).mean().item(), rel=1e-4)


def test_padding_in_a_file_of_ids_is_left_out(small, tmp_path):
    model = bare(small())
    ids = np.array([[5, 6, 7, 8], [9, 10, 0, 0]])
    np.savez(tmp_path / "a.npz", input_ids=ids, attention_mask=[[1, 1, 1, 1], [1, 1, 0, 0]])
    (tmp_path / "b.json").write_text("[[5, 6, 7, 8], [9, 10]]")
    np.save(tmp_path / "c.npy", ids)
    paths = [layer_path("m", model, Given(ids=str(tmp_path / name))) for name in ("a.npz", "b.json", "c.npy")]
    assert [path.pieces for path in paths] == [6, 6, 8]
    assert paths[0].distance == paths[1].distance != paths[2].distance


def test_ids_are_read_from_every_kind_of_file(tmp_path):
    (tmp_path / "row.json").write_text("[5, 6, 7]")
    (tmp_path / "table.json").write_text(json.dumps({"input_ids": [[5, 6], [7]]}))
    np.save(tmp_path / "row.npy", np.array([5, 6, 7]))
    assert read_ids(tmp_path / "row.json") == read_ids(tmp_path / "row.npy") == [[5, 6, 7]]
    assert read_ids(tmp_path / "table.json") == [[5, 6], [7]]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", "5 6", "give a .npy, .npz or .json file, or random"),
        ("a.json", "[5, 6", "cannot read .*a.json: Expecting"),
        ("a.json", '{"ids": [5]}', "holds no input_ids"),
        ("a.json", "7", "cannot read .*: neither a list of ids nor"),
        ("a.json", "[]", "holds no row of ids"),
        ("a.json", "[[5], []]", "or an empty one"),
        ("a.json", "[5, [6]]", "whole numbers"),
        ("a.json", "[[5.5, 6]]", "whole numbers"),
        ("a.json", "[[true]]", "whole numbers"),
        ("a.json", '{"input_ids": [[5, 6]], "attention_mask": [[0, 1]]}', "ones first and then zeros"),
        ("a.json", '{"input_ids": [[5, 6]], "attention_mask": [[1]]}', "as long as its row"),
        ("a.json", '{"input_ids": [[5, 6]], "attention_mask": [[1, 1], [1, 1]]}', "attention_mask has 2 rows"),
        ("a.json", '{"input_ids": 7}', "holds no row of ids"),
        ("a.json", "[" * 100_000, "cannot read"),
        ("a.npy", "no array", "cannot read"),
        ("a.npz", "PK\x03\x04 no archive", "cannot read"),
    ],
)
def test_a_file_that_holds_no_ids_is_one_line(name, content, sentence, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=sentence) as problem:
        read_ids(tmp_path / name)
    assert "\n" not in str(problem.value)


def test_ids_beyond_the_vocabulary_and_missing_ids_are_one_line(small, tmp_path):
    (tmp_path / "a.json").write_text("[98, 99]")
    with pytest.raises(UserError, match=r"holds the id 99, and m knows 0 to 98"):
        rows_of("m", bare(small()), Given(ids=str(tmp_path / "a.json")))
    with pytest.raises(UserError, match="m has no tokenizer beside it; give it pieces by --ids FILE, or --ids random"):
        rows_of("m", bare(small()), Given(texts=("a",)))


def test_random_ids_are_the_same_each_time_and_are_called_random(small):
    model = bare(small())
    what = Given(ids="random")
    rows = rows_of("m", model, what)
    assert rows == rows_of("m", model, what)
    assert len({tuple(row.input_ids) for row in rows}) == len(rows) == 8
    path = layer_path("m", model, what)
    assert path.source == "random ids"
    pytest.importorskip("matplotlib")
    assert "random ids" in draw_layers([path]).legends[0].get_texts()[0].get_text()


def test_ids_are_for_models_without_a_tokenizer_or_for_all_if_there_is_no_text(small, toys, tmp_path):
    (tmp_path / "a.json").write_text("[5, 6, 7]")
    both = given(["the film"], None, str(tmp_path / "a.json"))
    assert both.source(toys()) == "text"
    assert both.source(bare(small())) == "ids of a.json"
    assert given([], None, "random").source(toys()) == "random ids"


def test_ids_of_a_file_are_not_read_by_models_with_other_pieces(small, toys):
    models = {"a": bare(small()), "b": bare(small(vocab_size=50)), "c": toys()}
    with pytest.raises(UserError, match=r"x.json mean other pieces to each of these models \(pieces: a 99, b 50\)"):
        check_same_pieces(models, Given(("the",), "x.json"))
    check_same_pieces(models, Given(ids="random"))
    check_same_pieces({"a": models["a"], "c": models["c"]}, Given(("the",), "x.json"))


def test_a_text_longer_than_the_model_is_cut_and_counted(toys):
    path = layer_path("m", toys(positions=16), given(["the film", "the " * 40], None, ""))
    assert (path.rows, path.cut, path.pieces) == (2, 1, 4 + 16)


def test_the_picture_shows_every_model_by_a_line_that_differs_without_colour(toys, tmp_path):
    pytest.importorskip("matplotlib")
    what = given(["the film was fine ."], None, "")
    models = {name: toys(name) for name in ("albert", "bert", "distilbert")}
    paths = plot_layers({name: lambda m=model: m for name, model in models.items()}, what, tmp_path / "a.png")
    figure = draw_layers(paths)
    left, middle, right = figure.axes
    for number, path in enumerate(paths):
        drawn = [axes.lines[number] for axes in (left, middle, right)]
        assert drawn[0].get_xdata().tolist() == [1, 2]
        assert drawn[2].get_xdata().tolist() == [0, 1, 2]  # the embeddings first
        for line, values in zip(drawn, (path.distance, path.cosine, path.length), strict=True):
            assert line.get_ydata().tolist() == values
    assert len({(line.get_linestyle(), line.get_marker()) for line in left.lines}) == 3
    words = [each.get_text() for each in figure.legends[0].get_texts()]
    assert words == [
        "albert (albert, 2 layers, shares all)",
        "bert (bert, 2 layers)",
        "distilbert (distilbert, 2 layers)",
    ]


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_ending_decides_the_kind_of_file(ending, start, toys, tmp_path):
    pytest.importorskip("matplotlib")
    to = tmp_path / "new" / f"layers.{ending}"
    plot_layers({"m": toys}, given(["the film"], None, ""), to)
    assert to.read_bytes().startswith(start)
    assert [path.name for path in to.parent.iterdir()] == [to.name]


def test_real_checkpoints_give_the_states_that_are_published_with_them(data, minilm):
    folder = data / "checkpoints" / "albert-plbert"
    with np.load(folder / "reference.npz") as reference:
        wanted = reference["last_hidden_state"]
    path = layer_path("m", load(folder), Given(ids=str(folder / "reference.npz")))
    assert (path.depth, path.pieces) == (12, 37)
    assert path.length[-1] == pytest.approx(float(np.linalg.norm(wanted, axis=-1).mean()), rel=1e-4)
    other = layer_path("m", load(minilm), given(["The capital of France is Paris."], None, ""))
    assert (other.depth, other.family, other.sharing) == (6, "bert", "none")
    assert all(0 < value < 1 for value in (*path.cosine, *other.cosine))
