"""The frame of every benchmark: records in, a table for people and one JSON object for machines out.

    {"name": "spine",
     "commit": "82e7...", "dirty": false,
     "machine": {"cpu": ..., "cores": 2, "memory_bytes": ..., "platform": ...},
     "versions": {"culver": ..., "python": ..., "numpy": ..., ..., "java": ...},
     "results": [{"workload": "W1", "subscriptions": 40000, "engine": "inline", ...}, ...]}

A record is flat: its values are texts, numbers, booleans or None. A unit stands at the end of a name
(`p50_ms`, `events_per_second`), and the table shows it under the name. People read standard error, so
standard output holds the JSON object and nothing else.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from culver.bench import run_environment
from culver.errors import CulverError, InvalidConfiguration

Record = Mapping[str, str | int | float | bool | None]

_UNITS = {
    "_events_per_second": "events/s",
    "events_per_second": "events/s",
    "_per_second": "/s",
    "_ms": "ms",
    "_seconds": "s",
    "_bytes": "bytes",
    "_per_event": "/event",
}


class BenchmarkFailed(CulverError):
    """A benchmark could not measure: a site did not start, or lost events. The run then reports no figure."""


def document(name: str, results: Sequence[Record]) -> dict[str, Any]:
    """Build the JSON object that describes one run."""
    commit, dirty = run_environment.commit()
    return {
        "name": name,
        "commit": commit,
        "dirty": dirty,
        "machine": run_environment.machine(),
        "versions": run_environment.versions(),
        "results": [dict(record) for record in results],
    }


def table(results: Sequence[Record]) -> str:
    """Format records as aligned columns: a row of names, a row of units, then one row for each record."""
    names = list(dict.fromkeys(name for record in results for name in record))
    heads = [_split_unit(name) for name in names]
    rows = [[head for head, _ in heads], [unit for _, unit in heads]]
    rows += [[_shown(record.get(name)) for name in names] for record in results]
    widths = [max(len(row[i]) for row in rows) for i in range(len(names))]
    texts = [any(isinstance(record.get(name), str) for record in results) for name in names]
    lines = [
        "  ".join(
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(row, widths, texts, strict=True)
        ).rstrip()
        for row in rows
    ]
    lines.insert(2, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def report(name: str, results: Sequence[Record], json_path: str | None) -> None:
    """Show the table on standard error, and put the JSON object into the file (`-` is standard output)."""
    whole = document(name, results)
    made = (
        whole["commit"][:12] + (" with changes" if whole["dirty"] else "") if whole["commit"] else "no commit"
    )
    of = whole["machine"]
    tell(f"\n{name}: culver {whole['versions']['culver']} ({made}), {of['cores']} cores of {of['cpu']}\n")
    tell(table(results))
    if json_path is None:
        return
    text = json.dumps(whole, indent=2, allow_nan=False)
    if json_path == "-":
        click.echo(text)
    else:
        Path(json_path).write_text(text + "\n", encoding="utf-8")
        tell(f"\nwritten to {json_path}")


def check_json_path(path: str | None) -> None:
    """Refuse a target that cannot be written, before minutes of measuring. Raises InvalidConfiguration."""
    if path is None or path == "-":
        return
    directory = Path(path).absolute().parent
    if not directory.is_dir() or Path(path).is_dir():
        raise InvalidConfiguration(
            f"--json {path}: there is no directory {directory}, or it is one", field="json"
        )


def tell(text: str) -> None:
    """Show progress to people, on standard error."""
    click.echo(text, err=True)


Tell = Callable[[str], None]


def every_tenth(total: int, tell: Tell, what: str) -> Callable[[int], None]:
    """A function that takes how many are done, and tells so at each tenth of `total`."""
    told = 0

    def progress(done: int) -> None:
        nonlocal told
        if 10 * done // total > told:
            told = 10 * done // total
            tell(f"{done:,} of {total:,} {what}")

    return progress


def rounded(value: float, digits: int) -> float:
    """Round to a number of significant digits."""
    return float(f"{value:.{digits}g}")


def _split_unit(name: str) -> tuple[str, str]:
    for ending, unit in _UNITS.items():
        if name.endswith(ending):
            return (name.removesuffix(ending) or name.removesuffix("_per_second")).replace("_", " "), unit
    return name.replace("_", " "), ""


def _shown(value: str | int | float | bool | None) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
        case int():
            return f"{value:,}"
        case _:
            return value
