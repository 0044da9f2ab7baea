"""Settings: defaults, then a TOML file, then environment variables, then flags; the last one wins.

A setting `name` of section `[section]` in the file is `CULVER_SECTION_NAME` in the environment.
"""

import os
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from culver.errors import InvalidConfiguration, did_you_mean


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The HTTP side, and the limits that a client meets there."""

    host: str = "127.0.0.1"
    port: int = 8080
    max_body_bytes: int = 16 * 1024 * 1024
    max_message_bytes: int = 1024 * 1024  # of one WebSocket message, or one line of NDJSON
    max_connections: int = 0  # 0: as many as the limit of open files leaves room for
    connections_per_address: int = 0  # of one client address; 0: half of `max_connections`
    body_bytes_per_second: int = 500  # slowest average of a request's body; 0 switches the limit off
    allowed_hosts: str = ""  # more names under which clients reach it, with spaces or commas between
    allowed_origins: str = ""  # of other pages that may use it, with spaces or commas between; * is all
    events_per_second: int = 100_000  # for each client address; 0 switches the limit off
    requests_per_second: int = 5_000  # for each client address; 0 switches the limit off
    poll_seconds: float = 60.0  # longest wait of one long poll
    processes: int = 1  # gateways, each with its share of the subscriptions; the first is the site itself


@dataclass(frozen=True, slots=True)
class EventSettings:
    """Limits of one event."""

    max_bytes: int = 256 * 1024
    max_attributes: int = 256
    max_depth: int = 16
    max_name_length: int = 256
    max_batch: int = 10_000  # events in one batch request


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """Limits of one filter."""

    max_length: int = 16_384  # characters
    max_depth: int = 64  # nesting of parentheses, NOT and arithmetic
    max_clauses: int = 256  # after normalisation to a disjunction of conjunctions
    max_constraints: int = 4_096  # over all clauses
    max_values: int = 1_024  # in one IN list


UNLIMITED_FILTERS = FilterSettings(*(2**31,) * 5)
"""For filters that were checked when they arrived; the limits may have been lowered since."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    segment_bytes: int = 64 * 1024 * 1024
    max_pending_events: int = 100_000  # that wait for the group commit; beyond that, publishers wait
    max_pending_bytes: int = 64 * 1024 * 1024
    retention_seconds: int = 0  # in which events stay though no mailbox needs them
    reserve_bytes: int = 16 * 1024 * 1024  # of disk space, with which a full disk is emptied; 0: none


@dataclass(frozen=True, slots=True)
class PublishingSettings:
    """How long the site recognises a numbered publication that is sent again."""

    window_seconds: int = 24 * 3600
    window_ranges: int = 2_500_000  # of consecutive sequences, of all publishers: 24 bytes each
    max_publishers: int = 200_000  # that are remembered with ranges; of as many more, the last sequence


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    max_subscriptions: int = 2_000_000
    max_batch: int = 10_000  # subscriptions in one request, each with a filter of its own
    max_rows: int = 200_000  # subscriptions in one request that adds rows to a set


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """The engine, and how its work is divided; see `CHOICES` for the values of some settings."""

    engine: str = "spark"
    spark_master: str = "local[*]"
    spark_conf: dict[str, str] = field(default_factory=dict, repr=False)  # more of Spark, over Culver's own
    spark_ui: bool = False  # Spark's own web interface
    batch_events: int = 8_000_000  # most events in one batch, which otherwise takes all that wait
    placement: str = "auto"  # how subscriptions are placed on slices
    dimensions: int = 4  # by how many dimensions mpartition places a subscription at most
    cuts: str = "quantiles"  # how a dimension is cut into segments: evenly by load, or by width
    slices: int = 0  # parts of the index; 0: one for each worker
    elastic: bool = False  # add slices under saturation, and remove them when there are too many
    slices_min: int = 1  # least slices of an elastic pipeline
    slices_max: int = 32  # most slices of an elastic pipeline
    forwarding: str = "adaptive"  # the policy that chooses among an event's candidates
    worker_memory_bytes: int = 0  # of each worker, for the placement auto; 0: an even share of this machine's


CHOICES: Mapping[str, tuple[str, ...]] = {
    "pipeline.engine": ("spark", "inline"),
    "pipeline.placement": (
        "auto", "replicated", "hashed", "mpartition", "event-space", "one-dimension", "kmeans"
    ),
    "pipeline.cuts": ("quantiles", "equal"),
    "pipeline.forwarding": ("adaptive", "response-time", "subscription-count", "random"),
    "overlay.routing": ("b-drp", "clusters"),
    "overlay.encoding": ("cells", "paper"),
}  # fmt: skip
"""The values that some settings can have."""

MEASURED_CLUSTERS = -1
WORDS: Mapping[str, Mapping[str, int]] = {"overlay.clusters": {"measured": MEASURED_CLUSTERS}}
"""Words that may stand for a setting that is a number."""

MOST_SLICES = 256
_MOST = 2**62 - 1
_BOUNDS = {
    "pipeline.slices": (0, MOST_SLICES),
    "pipeline.slices_min": (1, MOST_SLICES),
    "pipeline.slices_max": (1, MOST_SLICES),
    "pipeline.dimensions": (1, 16),
    "publishing.window_seconds": (1, _MOST),
    "publishing.window_ranges": (1, 10_000_000),
    "delivery.mailbox_count": (1, _MOST),
    "delivery.mailbox_bytes": (1, _MOST),
    "delivery.mailbox_age_seconds": (1, _MOST),
    "overlay.clusters": (0, 4095),
}


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """Defaults of a mailbox; a subscription may ask for less, never for more."""

    mailbox_count: int = 1_000_000
    mailbox_bytes: int = 1024 * 1024 * 1024
    mailbox_age_seconds: int = 7 * 24 * 3600
    live_buffer: int = 10_000  # events waiting for one live subscriber before a gap is announced


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """The channel service that subscriptions may deliver to, and that the gateway offers to browsers."""

    url: str = ""  # of `culver channels serve`; without it the site has no channels
    username: str = ""  # of the service's Redis servers
    password: str = field(default="", repr=False)
    tls_ca: str = ""  # file of the authority that signed their certificates; without it, the system's
    tls_cert: str = ""  # files of a client certificate, for servers that ask for one
    tls_key: str = ""


@dataclass(frozen=True, slots=True)
class OverlaySettings:
    """The overlay, in which sites feed each other. A site without `listen` and `peers` is in none."""

    name: str = ""  # of this site, by which the others know it
    listen: str = ""  # HOST:PORT where other sites connect
    peers: str = ""  # addresses of other sites, HOST:PORT[?label=L&cost=N], with spaces or commas between
    allowed: str = ""  # names of the sites that may be linked; without it, every site
    address: str = ""  # HOST:PORT that other sites can dial, if that is not `listen`
    rescue: bool = True  # dial other sites that this one has heard of, while it is linked with nobody
    routing: str = "b-drp"  # how events travel; the same at all sites
    # How many for this site's events, with the routing `clusters`. 0: about the square root of the number of sites;
    # MEASURED_CLUSTERS, "measured": as its traffic asks for.
    clusters: int = 0
    encoding: str = "cells"  # how this site's predicates are encoded for the others
    false_positive_rate: float = 0.01  # that the encoding of one predicate may have
    max_vectors: int = 4096  # of this site's advertisement
    broadcast_threshold: float = 1.0  # share of the other sites beyond which a packet goes to all of them
    open_limit: int = 16  # sites that may ask for every event
    most_sites: int = 1024
    tls_ca: str = ""  # file of the authority that signed the sites' certificates
    tls_cert: str = ""
    tls_key: str = ""

    @property
    def is_on(self) -> bool:
        return bool(self.listen or self.peers.strip(" ,"))


@dataclass(frozen=True, slots=True)
class Settings:
    data_dir: Path = Path("culver-data")
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    events: EventSettings = field(default_factory=EventSettings)
    filters: FilterSettings = field(default_factory=FilterSettings)
    log: LogSettings = field(default_factory=LogSettings)
    publishing: PublishingSettings = field(default_factory=PublishingSettings)
    registry: RegistrySettings = field(default_factory=RegistrySettings)
    pipeline: PipelineSettings = field(default_factory=PipelineSettings)
    delivery: DeliverySettings = field(default_factory=DeliverySettings)
    channels: ChannelSettings = field(default_factory=ChannelSettings)
    overlay: OverlaySettings = field(default_factory=OverlaySettings)


def load(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Settings from all their sources. `flags` maps "section.name" (or "data_dir") to a value, or to None where it
    is not set. Raises InvalidConfiguration with the setting's name."""
    given = {name: (value, "the command line") for name, value in (flags or {}).items() if value is not None}
    settings = Settings()
    if path is not None:
        settings = _apply(settings, _from_file(path))
    settings = _apply(settings, _from_environment(os.environ if environment is None else environment))
    return _apply(settings, given)


def known_settings() -> dict[str, type]:
    """Every setting's full name and type."""
    known: dict[str, type] = {}
    hints = get_type_hints(Settings)
    for section in fields(Settings):
        kind = hints[section.name]
        if kind is Path:
            known[section.name] = Path
        else:
            known.update({f"{section.name}.{name}": t for name, t in get_type_hints(kind).items()})
    return known


def _from_file(path: Path) -> dict[str, tuple[Any, str]]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise InvalidConfiguration(f"cannot read the settings file {path}: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise InvalidConfiguration(f"the settings file {path} is not valid TOML: {exc}") from exc
    values: dict[str, tuple[Any, str]] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            values.update({f"{name}.{key}": (inner, str(path)) for key, inner in value.items()})
        else:
            values[name] = (value, str(path))
    return values


def _from_environment(environment: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    values: dict[str, tuple[Any, str]] = {}
    known = {"CULVER_" + name.replace(".", "_").upper(): name for name in known_settings()}
    sections = tuple(f"CULVER_{section.name.upper()}_" for section in fields(Settings))
    for variable, value in environment.items():
        if variable in known:
            values[known[variable]] = (value, variable)
        # The command line reads CULVER_LOG_LEVEL.
        elif variable.startswith(sections) and variable != "CULVER_LOG_LEVEL":
            hint = did_you_mean(variable, known)
            raise InvalidConfiguration(
                f"unknown setting {variable} in the environment; {hint}", field=variable
            )
    return values


def _apply(settings: Settings, values: Mapping[str, tuple[Any, str]]) -> Settings:
    """The settings with these values in place of their own; a table is merged into the present one."""
    known = known_settings()
    for name, (value, source) in values.items():
        if name not in known:
            raise InvalidConfiguration(
                f"unknown setting {name!r} from {source}; {did_you_mean(name, sorted(known))}",
                field=name,
            )
        converted = _convert(name, value, known[name], source)
        section, _, key = name.rpartition(".")
        if section:
            before = getattr(settings, section)
            if isinstance(converted, dict):
                converted = getattr(before, key) | converted
            settings = replace(settings, **{section: replace(before, **{key: converted})})
        else:
            settings = replace(settings, **{key: converted})
    return settings


_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_ACCEPTED: Mapping[type, tuple[type, ...]] = {
    str: (str, Path), Path: (str, Path), int: (str, int), float: (str, int, float)
}  # fmt: skip
_WANTED = {bool: "true or false", int: "a whole number", float: "a number"}


def _convert(name: str, value: Any, kind: type, source: str) -> Any:
    def refusal(wanted: str) -> InvalidConfiguration:
        return InvalidConfiguration(f"{name} from {source} must {wanted}", field=name)

    words = WORDS.get(name, {})
    if isinstance(value, str) and value in words:
        return words[value]
    try:
        if kind == dict[str, str]:
            return _table(value)
        if kind is bool:
            return value if isinstance(value, bool) else _BOOLEANS[str(value).lower()]
        if isinstance(value, bool) or not isinstance(value, _ACCEPTED[kind]):
            raise ValueError
        converted = kind(value)
    except (ValueError, KeyError):
        if kind == dict[str, str]:
            raise refusal("be pairs such as name=value") from None
        wanted = " or ".join([_WANTED.get(kind, "text"), *words])
        raise refusal(f"be {wanted}, not {value!r}") from None
    if name in CHOICES and converted not in CHOICES[name]:
        raise refusal(f"be one of {', '.join(CHOICES[name])}, not {value!r}")
    if name in _BOUNDS and not _BOUNDS[name][0] <= converted <= _BOUNDS[name][1]:
        raise refusal(f"be from {_BOUNDS[name][0]} to {_BOUNDS[name][1]}, it is {converted}")
    if kind in (int, float) and not 0 <= converted <= _MOST:
        raise refusal(f"not be negative or huge, it is {value!r}")
    return converted


def _table(value: Any) -> dict[str, str]:
    """A table of the file, or text such as `spark.executor.memory=2g spark.executor.cores=2`, as a dictionary. Raises
    ValueError."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in shlex.split(value)]
        value = {key: after for key, equals, after in pairs if equals} if all(p[1] for p in pairs) else None
    if not isinstance(value, Mapping) or not all(
        key and isinstance(item, str | int | float) for key, item in value.items()
    ):
        raise ValueError
    return {key: str(item).lower() if isinstance(item, bool) else str(item) for key, item in value.items()}
