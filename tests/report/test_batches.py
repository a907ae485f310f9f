"""The largest batches as curves: the table of `info --fit`, and BERT's own points where they belong."""

import pytest

from litebert.config import PRESETS
from litebert.model.memory import fit_table
from litebert.report.batches import MEMBERS, NONE_FITS, draw_memory, plot_memory, published

FAMILY = {name: PRESETS[name] for name in MEMBERS}


def test_the_published_points_are_those_of_berts_table():
    found = published()
    assert found["bert-base"] == {64: 64, 128: 32, 256: 16, 320: 14, 384: 12, 512: 6}
    assert found["bert-large"] == {64: 12, 128: 6, 256: 2, 320: 1, 384: 0, 512: 0}


def test_curves_are_the_table_of_info_fit(tmp_path):
    pytest.importorskip("matplotlib")
    found = plot_memory(FAMILY, 12 << 30, tmp_path / "a.png")
    assert found["curves"] == {name: fit_table(PRESETS[name], 12 << 30) for name in MEMBERS}
    assert (tmp_path / "a.png").stat().st_size > 5000


@pytest.mark.parametrize(("budget", "beside"), [(12 << 30, True), (12 * 10**9, True), (24 << 30, False)])
def test_published_points_stand_beside_a_card_of_their_size_only(budget, beside, tmp_path):
    pytest.importorskip("matplotlib")
    found = plot_memory(FAMILY, budget, tmp_path / "a.png")["published_12GB"]
    assert set(found) == ({"bert-base", "bert-large"} if beside else set())
    assert not plot_memory({"albert-base": PRESETS["albert-base"]}, budget, tmp_path / "a.png")["published_12GB"]


def test_a_batch_of_none_is_drawn_as_such():
    pytest.importorskip("matplotlib")
    curves = {"bert-xlarge": fit_table(PRESETS["bert-xlarge"], 12 << 30)}
    assert all(row["batch"] == 0 for row in curves["bert-xlarge"])
    (axes,) = draw_memory(curves, {}, 12 << 30).axes
    assert set(axes.lines[0].get_ydata()) == {NONE_FITS}
    assert "none fits" in [each.get_text() for each in axes.get_yticklabels()]


def test_lines_differ_without_colour_and_published_points_have_the_marker_of_their_model():
    pytest.importorskip("matplotlib")
    curves = {name: fit_table(config, 12 << 30) for name, config in FAMILY.items()}
    (axes,) = draw_memory(curves, published(), 12 << 30).axes
    lines = {line.get_label(): line for line in axes.lines}
    assert len({(line.get_marker(), line.get_linestyle()) for line in lines.values()}) == len(lines) == 8
    for name in ("bert-base", "bert-large"):
        points = lines[f"{name}, published for 12 GB"]
        assert points.get_marker() == lines[name].get_marker()
        assert points.get_linestyle() == "None"
        assert points.get_xdata().tolist() == [64, 128, 256, 320, 384, 512]
