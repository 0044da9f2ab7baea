"""The paper's figures one after another, and their plots."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from culver.bench.bench_frame import Record, Tell
from culver.bench.matching.plot import plot
from culver.bench.streamhub import (
    clustering,
    delays,
    distributions,
    filtering,
    paper_operators,
    subscription_storing,
    whole_pipeline,
)
from culver.bench.streamhub.streamhub_findings import Finding
from culver.bench.streamhub.streamhub_plan import StreamhubPlan

Measure = Callable[[StreamhubPlan, Tell], list[Finding]]
Lines = Mapping[str, Sequence[tuple[float, float]]]

_FIGURES: Mapping[str, Measure] = {
    distributions.FIGURE: distributions.measure,
    filtering.FIGURE: filtering.measure,
    paper_operators.FIGURE: paper_operators.measure,
    subscription_storing.FIGURE: subscription_storing.measure,
    clustering.FIGURE: clustering.measure,
    whole_pipeline.FIGURE: whole_pipeline.measure,
}
_TABLES: Mapping[str, Measure] = {"2": delays.measure}


def run(plan: StreamhubPlan, plots: Path, tell: Tell) -> list[Record]:
    """Measure what the plan names, in the paper's order, and draw into the directory `plots`. Raises
    BenchmarkFailed."""
    findings: list[Finding] = []
    measures = [_FIGURES[name] for name in _FIGURES if name in plan.figures]
    measures += [_TABLES[name] for name in _TABLES if name in plan.tables]
    plots.mkdir(parents=True, exist_ok=True)
    for measure in measures:
        found = measure(plan, tell)
        findings += found
        for name, text in drawings(found):
            path = plots / f"{name}.svg"
            path.write_text(text, encoding="utf-8")
            tell(f"drawn to {path}")
    return [finding.record() for finding in findings]


def drawings(findings: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    """The name and the text of the SVG file of each plot that these findings make."""
    figure = findings[0].figure
    if figure == distributions.FIGURE:
        for name, start in (("publications", "matched by"), ("subscriptions", "matching a")):
            lines: Lines = {"W2": _percentiles(findings, start)}
            unit = "% of subscriptions" if name == "publications" else "% of events"
            title = f"Figure 6: matching sets of {name}"
            yield f"figure-6-{name}", plot(title, unit, "percentile", lines, linear=True)
    elif figure == filtering.FIGURE:
        lines = _lines(findings, filtering.COST, "part", "subscriptions")
        yield "figure-7", plot("Figure 7: filtering on one core", "subscriptions", "µs per event", lines)
    elif figure == paper_operators.FIGURE:
        for operator in paper_operators.OPERATORS:
            for count in sorted({finding.subscriptions or 0 for finding in findings}):
                own = [each for each in findings if (each.part, each.subscriptions) == (operator, count)]
                title = f"Figure 8: {operator}, {count:,} subscriptions"
                text = plot(title, "slices", "events/s", _by_slices(own, paper_operators.RATE), linear=True)
                yield f"figure-8-{operator}-{count}", text
    elif figure == subscription_storing.FIGURE:
        stored = [finding for finding in findings if finding.part == "M"]
        lines = _by_slices(stored, subscription_storing.RATE)
        yield "figure-9", plot("Figure 9: storing subscriptions", "slices", "/s", lines, linear=True)
    elif figure == clustering.FIGURE:
        both = [finding for finding in findings if finding.part == "AP + M"]
        for name, what in (("storing", clustering.STORED), ("matching", clustering.MATCHED)):
            lines = _lines(both, what, "placement", "subscriptions")
            yield f"figure-10-{name}", plot(f"Figure 10: {what}", "subscriptions", "µs", lines, linear=True)
    elif figure == whole_pipeline.FIGURE:
        lines = _lines(findings, whole_pipeline.RATE, "placement", "cores")
        yield "figure-11", plot("Figure 11: through Spark", "cores", "events/s", lines, linear=True)


def _percentiles(findings: Sequence[Finding], start: str) -> list[tuple[float, float]]:
    """A cumulative distribution: values across, percentiles up."""
    own = [each for each in findings if each.what.startswith(start) and each.what.endswith("percentile")]
    return [(each.ours, at) for each, at in zip(own, distributions.PERCENTILES, strict=True)]


def _lines(findings: Sequence[Finding], what: str, line: str, across: str) -> Lines:
    lines: dict[str, list[tuple[float, float]]] = {}
    for finding in findings:
        if finding.what == what:
            lines.setdefault(str(getattr(finding, line)), []).append((getattr(finding, across), finding.ours))
    return lines


def _by_slices(findings: Sequence[Finding], what: str) -> Lines:
    """A line for each placement and number of cores; one slice belongs to the undivided index."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for finding in findings:
        if finding.what == what:
            name = f"{finding.placement}, {finding.cores}"
            lines.setdefault(name, []).append((finding.slices or 1, finding.ours))
    return lines
