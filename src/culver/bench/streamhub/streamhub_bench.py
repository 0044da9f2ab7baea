"""Runs the paper's figures in turn and draws their plots."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from culver.bench.bench_frame import Record, Tell
from culver.bench.line_plot import LinePlot, Lines, check_plotting, save_plots
from culver.bench.streamhub import (
    delays,
    filter_costs,
    match_distributions,
    operator_rates,
    placement_costs,
    storage_rates,
    whole_pipeline,
)
from culver.bench.streamhub.streamhub_findings import Finding
from culver.bench.streamhub.streamhub_plan import StreamhubPlan

Measure = Callable[[StreamhubPlan, Tell], list[Finding]]

_FIGURES: Mapping[str, Measure] = {
    match_distributions.FIGURE: match_distributions.measure,
    filter_costs.FIGURE: filter_costs.measure,
    operator_rates.FIGURE: operator_rates.measure,
    storage_rates.FIGURE: storage_rates.measure,
    placement_costs.FIGURE: placement_costs.measure,
    whole_pipeline.FIGURE: whole_pipeline.measure,
}


def run(plan: StreamhubPlan, plots: Path, tell: Tell) -> list[Record]:
    """Measure what the plan names, in the paper's order, and draw into the directory `plots`. Raises
    BenchmarkFailed."""
    check_plotting()
    findings: list[Finding] = []
    measures = [_FIGURES[name] for name in _FIGURES if name in plan.figures]
    measures += [delays.measure] if plan.tables else []
    for measure in measures:
        found = measure(plan, tell)
        findings += found
        save_plots(list(plots_of(found)), plots, tell)
    return [finding.record() for finding in findings]


def plots_of(findings: Sequence[Finding]) -> Iterator[LinePlot]:
    """The plots of one figure's findings; none for a table."""
    figure = findings[0].figure
    if figure == match_distributions.FIGURE:
        for name, start in (("publications", "matched by"), ("subscriptions", "matching a")):
            lines: Lines = {"W2": _percentiles(findings, start)}
            unit = "% of subscriptions" if name == "publications" else "% of events"
            yield LinePlot(
                f"figure-6-{name}", f"Figure 6: matching sets of {name}", unit, "percentile", lines
            )
    elif figure == filter_costs.FIGURE:
        lines = _lines(findings, filter_costs.COST, "part", "subscriptions")
        title = "Figure 7: filtering on one core"
        yield LinePlot("figure-7", title, "subscriptions", "µs per event", lines, linear=False)
    elif figure == operator_rates.FIGURE:
        for operator in operator_rates.OPERATORS:
            for count in sorted({finding.subscriptions or 0 for finding in findings}):
                own = [each for each in findings if (each.part, each.subscriptions) == (operator, count)]
                lines = _by_slices(own, operator_rates.RATE)
                title = f"Figure 8: {operator}, {count:,} subscriptions"
                yield LinePlot(f"figure-8-{operator}-{count}", title, "slices", "events/s", lines)
    elif figure == storage_rates.FIGURE:
        stored = [finding for finding in findings if finding.part == "M"]
        lines = _by_slices(stored, storage_rates.RATE)
        yield LinePlot("figure-9", "Figure 9: storing subscriptions", "slices", "subscriptions/s", lines)
    elif figure == placement_costs.FIGURE:
        both = [finding for finding in findings if finding.part == "AP + M"]
        for name, what in (("storing", placement_costs.STORED), ("matching", placement_costs.MATCHED)):
            lines = _lines(both, what, "placement", "subscriptions")
            yield LinePlot(f"figure-10-{name}", f"Figure 10: {what}", "subscriptions", "µs", lines)
    elif figure == whole_pipeline.FIGURE:
        lines = _lines(findings, whole_pipeline.RATE, "placement", "cores")
        yield LinePlot("figure-11", "Figure 11: through Spark", "cores", "events/s", lines)


def _percentiles(findings: Sequence[Finding], start: str) -> list[tuple[float, float]]:
    """A cumulative distribution: values on the x axis, percentiles on the y axis."""
    own = [each for each in findings if each.what.startswith(start) and each.what.endswith("percentile")]
    return [(each.ours, at) for each, at in zip(own, match_distributions.PERCENTILES, strict=True)]


def _lines(findings: Sequence[Finding], what: str, line: str, across: str) -> Lines:
    lines: dict[str, list[tuple[float, float]]] = {}
    for finding in findings:
        if finding.what == what:
            lines.setdefault(str(getattr(finding, line)), []).append((getattr(finding, across), finding.ours))
    return lines


def _by_slices(findings: Sequence[Finding], what: str) -> Lines:
    """One line for each placement and number of cores; the undivided index counts as one slice."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for each in [finding for finding in findings if finding.what == what]:
        name = f"{each.placement}, {each.cores} core{'' if each.cores == 1 else 's'}"
        lines.setdefault(name, []).append((each.slices or 1, each.ours))
    return lines
