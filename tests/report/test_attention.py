"""Pictures of attention: what is drawn is what the model weighs with, and it can be read."""

import numpy as np
import pytest
import torch

from litebert.config import UserError
from litebert.infer.model import load
from litebert.model.encoder import attention_maps
from litebert.report.attention import Attention, Panel, draw_attention, pick, plot_attention
from litebert.report.rows import given
from tests.toys import toy_model

TEXT = given(["the film was fine ."], None, "")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return load(toy_model(tmp_path_factory.mktemp("toy"), "albert", layers=3))


def some(panels, size, heads=1):
    grid = np.eye(size).tolist()
    return Attention("m", ["piece"] * size, 0, "text", [Panel(1, n + 1, grid) for n in range(panels)], heads)


def test_panels_are_the_models_own_maps(model, tmp_path):
    pytest.importorskip("matplotlib")
    found = plot_attention("m", model, TEXT, tmp_path / "a.png", "1,-1", "2,4")
    ids = torch.tensor([model.tokenizer.encode("the film was fine .").input_ids])
    with torch.no_grad():
        maps = attention_maps(model.encoder, ids)
    assert [(each.layer, each.head) for each in found.panels] == [(1, 2), (1, 4), (3, 2), (3, 4)]
    for each in found.panels:
        wanted = maps[each.layer - 1][0, each.head - 1]
        assert np.allclose(each.attention, wanted, atol=1e-5)
        assert np.allclose(np.sum(each.attention, 1), 1, atol=1e-4)
    assert found.pieces == ["[CLS]", "the", "film", "was", "fine", ".", "[SEP]"]


def test_the_mean_of_the_heads_is_one_panel_a_layer(model, tmp_path):
    pytest.importorskip("matplotlib")
    heads = plot_attention("m", model, TEXT, tmp_path / "a.png", "2")
    (mean,) = plot_attention("m", model, TEXT, tmp_path / "b.png", "2", "mean").panels
    assert len(heads.panels) == 4
    assert np.allclose(mean.attention, np.mean([each.attention for each in heads.panels], 0), atol=1e-5)
    assert mean.title == "layer 2, mean of heads"
    assert (tmp_path / "a.png").read_bytes() != (tmp_path / "b.png").read_bytes()


def test_the_last_layer_and_all_heads_unless_others_are_said(model, tmp_path):
    pytest.importorskip("matplotlib")
    found = plot_attention("m", model, TEXT, tmp_path / "a.png")
    assert [(each.layer, each.head) for each in found.panels] == [(3, 1), (3, 2), (3, 3), (3, 4)]


@pytest.mark.parametrize("said", ["0", "4", "-4", "1,9", "two", "1,,2", ""])
def test_a_layer_that_is_not_there_is_one_line(said):
    with pytest.raises(UserError, match=f"--layers {said}; this model has 3: give numbers from 1 to 3, last, all"):
        pick(said, 3, "layers")


def test_a_long_text_is_cut_to_what_can_be_read(model, tmp_path):
    pytest.importorskip("matplotlib")
    found = plot_attention("m", model, given(["the " * 100], None, ""), tmp_path / "a.png", heads="mean")
    assert (len(found.pieces), found.lost) == (64, 38)


def test_too_many_panels_are_refused_before_they_are_drawn(model, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("litebert.report.attention.PANELS", 11)
    with pytest.raises(UserError, match=r"3 layers × 4 heads are 12 panels, and a picture holds 11; choose by"):
        plot_attention("m", model, TEXT, tmp_path / "a.png", "all")
    with pytest.raises(UserError, match="do not fit a picture that can be read"):
        draw_attention(some(48, 64))
    assert not list(tmp_path.iterdir())


def test_several_texts_are_refused(model, tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(UserError, match="2 texts; attention is drawn of one"):
        plot_attention("m", model, given(["the", "film"], None, ""), tmp_path / "a.png")


@pytest.mark.parametrize(("panels", "size", "heads"), [(1, 8, 1), (12, 14, 12), (24, 20, 12), (16, 30, 16), (7, 64, 1)])
def test_every_row_and_the_lowest_panel_of_every_column_name_their_pieces(panels, size, heads):
    """And the letters are no smaller than can be read, in a picture that is not too wide."""
    pytest.importorskip("matplotlib")
    figure = draw_attention(some(panels, size, heads))
    *places, _ = [axes for axes in figure.axes if axes.get_visible()]
    assert len(places) == panels
    width, height = figure.get_size_inches()
    assert width < 36
    assert height < 52
    below, left = {}, set()
    for place in places:
        spec = place.get_subplotspec()
        below[spec.colspan.start] = place
        if spec.is_first_col():
            left.add(place)
    for place in places:
        across, up = (
            [each.get_text() for each in ticks] for ticks in (place.get_xticklabels(), place.get_yticklabels())
        )
        assert (across == ["piece"] * size) == (place in below.values())
        assert (up == ["piece"] * size) == (place in left)
    assert places[0].get_yticklabels()[0].get_fontsize() >= 6
    limits = {place.images[0].get_clim() for place in places}
    assert limits == {(0.0, 1.0)}  # one scale for all
