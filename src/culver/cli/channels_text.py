"""What `culver channels` prints: messages, gaps, and the pages of `plan` and `top`."""

import base64
import time
from collections.abc import Sequence
from typing import Any

from culver.channels import ChannelStatus, LostMessages, ServerStatus, ServiceStatus

_SHOWN_DECISIONS = 10


def shown_count(count: int, thing: str) -> str:
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def message_text(message: dict[str, Any]) -> str:
    """One line for a message or a gap of a ``PubSub``."""
    data = message["data"]
    text = data.decode(errors="replace") if isinstance(data, bytes) else str(data)
    return f"{_name(message['channel'])}: {text}"


def message_record(message: dict[str, Any]) -> dict[str, Any]:
    """The same for ``--json``. Data that is not UTF-8 comes as ``data_base64``."""
    record = {"type": message["type"], "channel": _name(message["channel"])}
    if message["pattern"] is not None:
        record["pattern"] = _name(message["pattern"])
    try:
        record["data"] = message["data"].decode()
    except UnicodeDecodeError:
        record["data_base64"] = base64.b64encode(message["data"]).decode()
    return record


def gap_record(message: dict[str, Any]) -> dict[str, Any]:
    """A gap for ``--json``: which messages of which publisher are lost."""
    lost = message["data"]
    record: dict[str, Any] = {"type": "gap", "channel": _name(message["channel"]), "text": str(lost)}
    if isinstance(lost, LostMessages):
        record |= {
            "publisher": f"{lost.publisher:x}",
            "epoch": lost.epoch,
            "first": lost.first,
            "last": lost.last,
        }
    return record


def _name(name: bytes | None) -> str:
    return (name or b"").decode(errors="replace")


def plan_page(status: ServiceStatus) -> str:
    """Servers, channels with an entry, and decisions."""
    lines = [*_servers(status.servers), ""]
    placed = [channel for channel in status.channels if channel.version]
    if placed:
        lines += _channels(placed)
    else:
        lines.append("No channel has an entry: consistent hashing gives each its server, its home.")
    if status.moves_in_progress:
        lines += ["", f"Moves in progress: {status.moves_in_progress:,}"]
    lines += ["", "Decisions:" if status.decisions else "The balancer has not decided anything yet."]
    for decision in status.decisions[:_SHOWN_DECISIONS]:
        at = time.strftime("%H:%M:%S", time.localtime(decision.at))
        lines += [f"  {at}  {reason}" for reason in decision.reasons]
    return "\n".join(lines)


def top_page(status: ServiceStatus, url: str, width: int, height: int) -> str:
    """Servers and the busiest channels, within a terminal's size."""
    busiest = sorted(
        (channel for channel in status.channels if channel.publications),
        key=lambda channel: -channel.outgoing_bytes,
    )
    head = f"Channels at {url}   moves: {status.moves:,} made, {status.moves_in_progress:,} in progress"
    lines = [head, "", *_servers(status.servers), ""]
    lines += _channels(busiest) if busiest else ["Nobody has published in the last seconds."]
    return "\n".join(line[:width] for line in lines[: height - 1])


def _servers(servers: Sequence[ServerStatus]) -> list[str]:
    heads = ("server", "state", "load", "out MB/s", "allowed", "CPU", "clients")
    rows = [heads, *map(_server_figures, servers)]
    if len({server.price for server in servers}) > 1:
        prices = ["price", *(f"{server.price:g}" for server in servers)]
        rows = [(*row, price) for row, price in zip(rows, prices, strict=True)]
    addresses = ["address", *(server.url for server in servers)]
    return _table([(*row, address) for row, address in zip(rows, addresses, strict=True)])


def _server_figures(server: ServerStatus) -> tuple[str, ...]:
    return (
        str(server.number),
        server.saturation or server.state,
        f"{server.load_ratio:.2f}",
        f"{server.outgoing_bytes / 1e6:.2f}",
        f"{server.allowed_bytes / 1e6:.1f}",
        f"{server.cpu:.0%}",
        f"{server.clients:,}",
    )


def _channels(channels: Sequence[ChannelStatus]) -> list[str]:
    heads = ("channel", "mapping", "servers", "messages/s", "subscribers", "out kB/s")
    return _table([heads, *map(_channel_row, channels)])


def _channel_row(channel: ChannelStatus) -> tuple[str, ...]:
    return (
        channel.channel[:40],
        channel.mapping + (", moving" if channel.moving else ""),
        # As decisions write it: [1+2 3] has the groups (1, 2) and (3,).
        "[" + " ".join("+".join(map(str, group)) for group in channel.groups) + "]",
        f"{channel.publications:,.1f}",
        f"{channel.subscribers:,}",
        f"{channel.outgoing_bytes / 1e3:,.1f}",
    )


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
