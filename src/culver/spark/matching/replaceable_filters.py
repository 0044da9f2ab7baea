"""`culver.spark.Filters`: filters that are replaced while streaming queries use them."""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from culver.errors import InvalidRequest, Unavailable
from culver.spark.matching.event_schema import EventSchema
from culver.spark.matching.filter_forms import FilterForms, package_of
from culver.spark.matching.filter_package import FilterPackage
from culver.spark.matching.filter_server import FilterAddress, FilterServer
from culver.spark.matching.filter_versions import FilterVersions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_USES = 64


class Filters:
    """Filters for `match` that can be replaced while streaming queries use them. Thread-safe.

    Every micro-batch uses one version: the newest when the first of its tasks begins. A DataFrame that is not
    streaming uses the version at the time of `match`.

    The workers get them from this process, over HTTP at the address by which Spark knows the driver, and `port` (by
    default any that is free). Queries that use them fail after `close`, and where this process ends.
    """

    def __init__(self, filters: FilterForms, *, port: int = 0) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._server: FilterServer | None = None
        self._closed = False
        self._uses: dict[int, _Use] = {}
        package = package_of(filters)
        self._packages = {package.digest: package}
        self._versions = FilterVersions(package.digest)

    @property
    def package(self) -> FilterPackage:
        """The newest version. Raises Unavailable after `close`."""
        with self._lock:
            return self._newest()

    def replace(self, filters: FilterForms) -> None:
        """Use other filters from the next micro-batch on. They must suit the events of the queries that run, and of
        those that are not started yet: raises as `match` does, and then nothing has changed."""
        package = package_of(filters)
        with self._lock:
            self._check_open()
            self._forget_ended_queries()
            for use in self._uses.values():
                if use.queries or not use.started:
                    use.schema.check(package.matcher)
            self._packages[package.digest] = package
            self._versions.replace(package.digest)
            in_use = self._versions.in_use()
            self._packages = {digest: each for digest, each in self._packages.items() if digest in in_use}

    def serve(self, session: "SparkSession", schema: EventSchema) -> tuple[FilterAddress, int]:
        """Serve the filters to a streaming query over events of that schema: returns the address, and the number with
        which the query asks for them. Raises InvalidRequest where the port cannot be had, and as `EventSchema.check`
        does."""
        with self._lock:
            schema.check(self._newest().matcher)
            if self._server is None:
                self._server = self._start_server(session)
            for number, use in self._uses.items():
                if use.session is session and use.schema == schema:
                    return self._server.address, number
            number = 1 + max(self._uses, default=0)
            self._uses[number] = _Use(session, schema)
            if len(self._uses) > _MOST_USES:
                del self._uses[min(self._uses)]
            return self._server.address, number

    def __len__(self) -> int:
        return len(self.package.matcher)

    def close(self) -> None:
        """Stop serving. May be called again."""
        with self._lock:
            self._closed = True
            self._packages = {}
            server, self._server = self._server, None
        if server is not None:  # outside of the lock, which its threads take
            server.close()

    def __enter__(self) -> "Filters":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _newest(self) -> FilterPackage:
        self._check_open()
        return self._packages[self._versions.current]

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("these filters are closed")

    def _start_server(self, session: "SparkSession") -> FilterServer:
        configuration = session.sparkContext.getConf()
        host = configuration.get("spark.driver.host", "127.0.0.1")
        bind = configuration.get("spark.driver.bindAddress", host)
        try:
            return FilterServer(bind, host, self._port, self._choose, self._path_of)
        except OSError as exc:
            raise InvalidRequest(
                f"the filters cannot be served at {bind}, port {self._port or 'any'}: {exc}", field="port"
            ) from exc

    def _choose(self, query: str, batch: int, number: int) -> str:
        with self._lock:
            use = self._uses.get(number)
            if use is not None:
                use.started = True
                use.queries.add(query)
            return self._versions.choose(query, batch)

    def _forget_ended_queries(self) -> None:
        for use in self._uses.values():
            if use.queries:
                ended = use.queries - {query.id for query in use.session.streams.active}
                use.queries -= ended
                for query in ended:
                    self._versions.forget(query)

    def _path_of(self, version: str) -> Path | None:
        with self._lock:
            package = self._packages.get(version)
        return None if package is None else package.path


@dataclass
class _Use:
    """Events that are matched, and the ids of the queries over them which have asked for filters and not ended."""

    session: "SparkSession"
    schema: EventSchema
    started: bool = False
    queries: set[str] = field(default_factory=set)
