"""The columns of a DataFrame as the attributes of events, and what filters expect of them."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from culver.errors import InvalidEvent, InvalidFilter, InvalidRequest, did_you_mean
from culver.matcher import ColumnMapping, Matcher
from culver.model import DOMAIN_OF_KIND, Domain, normalise_text
from culver.model.columns import DATA_PREFIX
from culver.model.language import domains_of, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField


class EventSchema(NamedTuple):
    """`timezone` is the session's: as everywhere in Spark, it is that of timestamps without one."""

    columns: pa.Schema
    timezone: str
    strict: bool

    @classmethod
    def of(cls, events: "DataFrame", ids: str, *, strict: bool) -> "EventSchema":
        """Raises InvalidRequest for a name that occurs twice, and for a column that Spark cannot hand to Python."""
        timezone = events.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC"
        seen: dict[str, str] = {}
        for name in events.columns:
            if name.lower() in seen:  # Spark does not tell them apart
                raise InvalidRequest(f"the events have two columns {name!r}: rename one of them", field=name)
            seen[name.lower()] = name
        if ids.lower() in seen:
            raise InvalidRequest(
                f"the events have a column {seen[ids.lower()]!r} already: give the ids another name with ids=...",
                field="ids",
            )
        return cls(pa.schema(_arrow_fields(events.schema.fields, timezone)), timezone, strict)

    def check(self, matcher: Matcher) -> None:
        """Raises InvalidEvent for a column that a filter names and whose type no attribute has, InvalidRequest for
        one whose timestamps need a time zone that only Spark knows; and, if the schema is strict, InvalidFilter with
        the id of a filter that does not suit the columns."""
        kinds = self._mapped(matcher).kinds
        if not self.strict:
            return
        held: dict[str, Domain | None] = {name: DOMAIN_OF_KIND[kind] for name, kind in kinds.items()}
        # A column of nulls may be compared with anything.
        held.update({name: None for name, kind in self._types.items() if pa.types.is_null(kind)})
        held.update({DATA_PREFIX + name: domain for name, domain in held.items()})
        wrong = {
            (name, domain)
            for name, domain in matcher.domains
            if name not in held or (None not in (domain, held[name]) and domain != held[name])
        }
        if not wrong:
            return
        # Slow where there are many filters, but only a filter that is there counts, and it is to be named.
        for id_ in matcher:
            for name, domain in _domains_in(matcher.filter(id_)):
                if (name, domain) in wrong:
                    self._refuse(id_, name, domain, held.get(name))

    def _mapped(self, matcher: Matcher) -> ColumnMapping:
        try:
            return ColumnMapping(self.columns, matcher.attributes, self.timezone)
        except InvalidEvent as exc:
            if not pa.types.is_timestamp(self._types.get(exc.field or "", pa.null())):
                raise
            # Spark takes names such as GMT+2 and PST, too.
            raise InvalidRequest(f"{exc.message}, as spark.sql.session.timeZone", field=exc.field) from None

    def _refuse(self, id_: str, name: str, domain: Domain | None, held: Domain | None) -> None:
        kind = self._types.get(name, self._types.get(name.removeprefix(DATA_PREFIX)))
        if held is not None:
            what = f"the column {name!r} holds a {held}, and is compared with a {domain}"
        elif kind is not None and pa.types.is_struct(kind):
            what = f"the column {name!r} is a struct; name one of its fields: {', '.join(kind.names)}"
        else:
            what = f"there is no column {name!r}; {did_you_mean(name, self._attributes())}"
        raise InvalidFilter(
            f"filter {id_!r}: {what} (with strict=False it does not match)", field="filters", id=id_
        )

    @property
    def _types(self) -> dict[str, pa.DataType]:
        """Of all columns, and of the fields of structs by their dotted names."""
        return dict(_types_of(self.columns))

    def _attributes(self) -> Iterator[str]:
        """Everything that a filter could name."""
        for column in self.columns:
            with contextlib.suppress(InvalidEvent):
                yield from ColumnMapping(pa.schema([column]), None, self.timezone).kinds


def _types_of(fields: Iterable[pa.Field], prefix: str = "") -> Iterator[tuple[str, pa.DataType]]:
    for field in fields:
        name = normalise_text(prefix + field.name)
        yield name, field.type
        if pa.types.is_struct(field.type):
            yield from _types_of(field.type, f"{name}.")


def _arrow_fields(fields: "Iterable[StructField]", timezone: str) -> Iterator[pa.Field]:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    for field in fields:
        try:
            yield pa.field(field.name, to_arrow_type(field.dataType, timezone=timezone))
        except PySparkException as exc:
            kind = field.dataType.simpleString()
            raise InvalidRequest(
                f"the column {field.name!r} has the type {kind}, which Spark cannot hand to Python: leave it out",
                field=field.name,
            ) from exc


def _domains_in(text: str) -> Iterator[tuple[str, Domain | None]]:
    for clause in parse(text).clauses:
        for constraint in clause:
            yield from domains_of(constraint)
