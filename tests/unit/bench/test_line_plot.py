"""Line plots: all of their text is in the picture, and their axes are as asked for."""

import importlib.util
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from culver.bench.line_plot import LinePlot, check_plotting, save_plots
from culver.errors import InvalidConfiguration

LONG = "a placement with a long name, on 2 cores"
LINES = {LONG: [(1.0, 10.0), (100.0, 1_000_000.0)], "<b>": [(10.0, 20.0)]}


def texts_of(path: Path) -> dict[str, tuple[float, float]]:
    """Every text of an SVG file, and where it begins."""
    return {
        text.text or "": (float(text.attrib["x"]), float(text.attrib["y"]))
        for text in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    }


def test_titles_ticks_and_the_whole_legend_are_in_the_picture(tmp_path: Path) -> None:
    LinePlot("p", "a title", "slices", "events/s", LINES).save(tmp_path / "p.svg")
    texts = texts_of(tmp_path / "p.svg")
    assert {"a title", "slices", "events/s", LONG, "<b>", "0", "1,000,000"} <= texts.keys()
    width = float(ElementTree.parse(tmp_path / "p.svg").getroot().attrib["viewBox"].split()[2])
    assert texts[LONG][0] + 4.5 * len(LONG) < width


def test_logarithmic_axes_have_a_tick_for_each_power_of_ten_at_even_distances(tmp_path: Path) -> None:
    LinePlot("p", "t", "x", "y", LINES, linear=False).save(tmp_path / "p.svg")
    texts = texts_of(tmp_path / "p.svg")
    assert "0" not in texts
    places = [texts[f"{10**exponent:,}"][1] for exponent in (3, 4, 5)]
    assert places[0] > places[1]
    assert places[0] - places[1] == pytest.approx(places[1] - places[2])


def test_the_same_plot_makes_the_same_file(tmp_path: Path) -> None:
    plots = [LinePlot(name, "t", "x", "y", LINES) for name in ("one", "two")]
    told: list[str] = []
    save_plots(plots, tmp_path / "made", told.append)
    one, two = (tmp_path / "made" / "one.svg", tmp_path / "made" / "two.svg")
    assert one.read_text() == two.read_text()
    assert told == [f"drawn to {one}", f"drawn to {two}"]


def test_without_matplotlib_the_way_to_install_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidConfiguration, match="culver\\[bench\\]"):
        check_plotting()
