"""Line plots of benchmark results, drawn with matplotlib and saved as SVG files."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from culver.bench.bench_frame import Tell
from culver.errors import InvalidConfiguration

Lines = Mapping[str, Sequence[tuple[float, float]]]
"""Points by the name of their line."""

_WIDTH_INCHES, _HEIGHT_INCHES = 9.0, 5.0


@dataclass(frozen=True, slots=True)
class LinePlot:
    """A plot with one line for each series, and a legend beside the axes. Both axes are logarithmic, or both are
    linear and begin at 0. ``marks`` are single points, such as moments when something was decided."""

    name: str
    title: str
    x_title: str
    y_title: str
    lines: Lines
    linear: bool = True
    marks: Lines = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the plot to `path` as SVG."""
        # Only the `bench` extra installs matplotlib, and it takes half a second to import.
        from matplotlib import rc_context
        from matplotlib.figure import Figure
        from matplotlib.ticker import StrMethodFormatter

        # Text stays text, so that the files are small and can be searched; the salt keeps ids the same in every run.
        with rc_context(
            {"svg.fonttype": "none", "svg.hashsalt": "culver", "axes.grid": True, "grid.alpha": 0.4}
        ):
            figure = Figure(figsize=(_WIDTH_INCHES, _HEIGHT_INCHES), layout="constrained")
            axes = figure.add_subplot(title=self.title, xlabel=self.x_title, ylabel=self.y_title)
            for label, points in self.lines.items():
                axes.plot(*zip(*sorted(points), strict=True), marker="o", markersize=4, label=label)
            for label, points in self.marks.items():
                if points:
                    axes.plot(*zip(*points, strict=True), marker="D", linestyle="none", label=label)
            if self.linear:
                axes.set_xlim(left=0)
                axes.set_ylim(bottom=0)
            else:
                axes.set_xscale("log")
                axes.set_yscale("log")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
            figure.legend(loc="outside right upper")
            figure.savefig(path, format="svg", metadata={"Date": None})


def check_plotting() -> None:
    """Refuse to plot without matplotlib, before minutes of measuring. Raises InvalidConfiguration."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidConfiguration("plots need matplotlib: pip install 'culver[bench]'")


def save_plots(plots: Sequence[LinePlot], directory: Path, tell: Tell) -> None:
    """Write each plot to `directory`, as `NAME.svg`."""
    directory.mkdir(parents=True, exist_ok=True)
    for plot in plots:
        path = directory / f"{plot.name}.svg"
        plot.save(path)
        tell(f"drawn to {path}")
