"""A condition to clauses: negation pushed down, conjunctions multiplied out, constraints merged.

Negation follows SQL's three values: the complement of a constraint is unknown where the constraint is (`NOT x < 5` is
`x >= 5`, and both are unknown for a string). A clause matches only where all of it is true, so this module does not
tell unknown from false.

It merges the constraints of a clause on one attribute as they meet, and drops a clause that nothing can satisfy at
once. `x NOT BETWEEN 1 AND 2 AND x NOT BETWEEN 5 AND 6 AND ...` therefore grows by one clause for each part instead of
doubling. The limits on clauses, constraints and work hold at every step.
"""

from typing import Any

from msgspec.structs import replace

from culver.config import FilterSettings
from culver.errors import InvalidFilter
from culver.model.language.patterns import parse_pattern, shape_of
from culver.model.language.predicate import (
    And,
    Attribute,
    Between,
    Clause,
    Comparison,
    Computed,
    Condition,
    Constant,
    Constraint,
    Contains,
    In,
    IsNull,
    Like,
    Literal,
    Member,
    Not,
    OneOf,
    Operator,
    Or,
    Pattern,
    Presence,
    constraint_holds_for_value,
    domain_of_constraint,
)
from culver.model.values import Domain, Scalar, domain_of

# A clause under construction: the merged constraints of each attribute; those under None are Computed.
_Draft = dict[str | None, tuple[Constraint, ...]]

_COMPLEMENT = {
    Operator.EQUAL: Operator.NOT_EQUAL,
    Operator.NOT_EQUAL: Operator.EQUAL,
    Operator.LESS: Operator.GREATER_OR_EQUAL,
    Operator.GREATER_OR_EQUAL: Operator.LESS,
    Operator.GREATER: Operator.LESS_OR_EQUAL,
    Operator.LESS_OR_EQUAL: Operator.GREATER,
}


def clauses_of(condition: Condition, settings: FilterSettings) -> tuple[Clause, ...]:
    """The clauses of `condition`, distinct, in the order of the text; each sorted by attribute and type,
    with Computed constraints last.

    Raises InvalidFilter, with `limit` in its details, where the settings bound the expansion."""
    drafts = _Expansion(settings).expand(condition, negated=False)
    clauses = tuple(_finished(draft) for draft in drafts)
    if sum(map(len, clauses)) > settings.max_constraints:
        raise _too_many_constraints(settings)
    return clauses


def _finished(draft: _Draft) -> Clause:
    constraints: list[Constraint] = []
    for attribute in sorted(name for name in draft if name is not None):
        constraints.extend(draft[attribute])
    constraints.extend(sorted(draft.get(None, ()), key=repr))
    return tuple(constraints)


# --- multiplying out ------------------------------------------------------------------------------------


class _Expansion:
    def __init__(self, settings: FilterSettings) -> None:
        self._settings = settings
        # In merged constraints. Contradictions can keep the result small while the work explodes.
        self._work_left = 16 * settings.max_constraints

    def expand(self, condition: Condition, negated: bool) -> list[_Draft]:
        while isinstance(condition, Not):
            condition = condition.condition
            negated = not negated
        if isinstance(condition, And):
            join = self._any_of if negated else self._all_of
            return join(condition.conditions, negated)
        if isinstance(condition, Or):
            join = self._all_of if negated else self._any_of
            return join(condition.conditions, negated)
        return _leaf(condition, negated)

    def _any_of(self, conditions: tuple[Condition, ...], negated: bool) -> list[_Draft]:
        result = _Distinct(self._settings)
        for condition in conditions:
            for draft in self.expand(condition, negated):
                self._spend(len(draft))
                result.add(draft)
        return result.drafts

    def _all_of(self, conditions: tuple[Condition, ...], negated: bool) -> list[_Draft]:
        common: _Draft = {}
        alternatives: list[list[_Draft]] = []
        possible = True
        for condition in conditions:
            drafts = self.expand(condition, negated)
            if len(drafts) == 1:
                possible = possible and self._meet(common, drafts[0])
            elif drafts:
                alternatives.append(drafts)
            else:
                possible = False
        if not possible:
            return []
        result = [common]
        # Short factors first: what they contradict need not be multiplied with the long ones.
        for factor in sorted(alternatives, key=len):
            product = _Distinct(self._settings)
            for left in result:
                for right in factor:
                    draft = dict(left)
                    self._spend(len(left))
                    if self._meet(draft, right):
                        product.add(draft)
            result = product.drafts
        return result

    def _meet(self, draft: _Draft, other: _Draft) -> bool:
        """Merge `other` into `draft`; False where nothing can satisfy both."""
        for attribute, theirs in other.items():
            ours = draft.get(attribute)
            if ours is None:
                self._spend(1)
                draft[attribute] = theirs
                continue
            self._spend(sum(map(_weight, ours)) + sum(map(_weight, theirs)))
            if attribute is None:
                draft[None] = tuple(dict.fromkeys(ours + theirs))
                continue
            merged = _merged(attribute, ours, theirs)
            if merged is None:
                return False
            draft[attribute] = merged
        return True

    def _spend(self, work: int) -> None:
        self._work_left -= work
        if self._work_left < 0:
            raise _too_complex(
                "takes too many steps to multiply out", "max_constraints", self._settings.max_constraints
            )


class _Distinct:
    """Distinct clauses, within the limits. A clause without constraints replaces all others."""

    def __init__(self, settings: FilterSettings) -> None:
        self.drafts: list[_Draft] = []
        self._seen: set[frozenset[tuple[str | None, tuple[Constraint, ...]]]] = set()
        self._constraints = 0
        self._settings = settings

    def add(self, draft: _Draft) -> None:
        if not draft:
            self.drafts = [draft]
        if not all(self.drafts):
            return
        key = frozenset(draft.items())
        if key in self._seen:
            return
        self._seen.add(key)
        self.drafts.append(draft)
        self._constraints += sum(map(len, draft.values()))
        if len(self.drafts) > self._settings.max_clauses:
            raise _too_complex(
                f"expands to more than {self._settings.max_clauses} clauses",
                "max_clauses",
                self._settings.max_clauses,
            )
        if self._constraints > self._settings.max_constraints:
            raise _too_many_constraints(self._settings)


def _too_many_constraints(settings: FilterSettings) -> InvalidFilter:
    limit = settings.max_constraints
    return _too_complex(f"expands to more than {limit} constraints", "max_constraints", limit)


def _too_complex(what: str, setting: str, limit: int) -> InvalidFilter:
    return InvalidFilter(
        f"the filter {what} (filters.{setting}); split it into several subscriptions",
        field="filter",
        limit=limit,
        setting=f"filters.{setting}",
    )


def _weight(constraint: Constraint) -> int:
    return 1 + len(constraint.values) // 2 if isinstance(constraint, OneOf) else 1


# --- single conditions ----------------------------------------------------------------------------------


def _leaf(condition: Comparison | In | Like | Member | IsNull | Constant, negated: bool) -> list[_Draft]:
    match condition:
        case Comparison():
            return _comparison(condition, negated)
        case In(Attribute(name), values):
            by_domain: dict[Domain, list[Scalar]] = {}
            for value in values:
                by_domain.setdefault(domain_of(value), []).append(value)
            # x NOT IN (1, 'a') is x <> 1 AND x <> 'a': no value is of both types.
            if negated and len(by_domain) > 1:
                return []
            return [
                draft
                for domain, points in by_domain.items()
                for draft in _one_of(name, domain, points, negated)
            ]
        case Like(Attribute(name), pattern, escape):
            return _like(name, pattern, escape, negated)
        case Member(text, Attribute(name)):
            return [{name: (Contains(name, text, negated),)}]
        case IsNull(Attribute(name)):
            return [{name: (Presence(name, present=negated),)}]
        case Constant(truth):
            return [{}] if truth is not negated else []


def _comparison(comparison: Comparison, negated: bool) -> list[_Draft]:
    operator, left, right = comparison.operator, comparison.left, comparison.right
    if negated:
        operator = _COMPLEMENT[operator]
    if not (isinstance(left, Attribute) and isinstance(right, Literal)):
        return [{None: (Computed(Comparison(operator, left, right)),)}]
    name, value = left.name, right.value
    domain = domain_of(value)
    if operator in (Operator.EQUAL, Operator.NOT_EQUAL):
        return _one_of(name, domain, [value], negated=operator is Operator.NOT_EQUAL)
    closed = operator in (Operator.LESS_OR_EQUAL, Operator.GREATER_OR_EQUAL)
    if operator in (Operator.GREATER, Operator.GREATER_OR_EQUAL):
        return [{name: (Between(name, domain, value, closed, None, False),)}]
    if value == "":
        # No string lies below the empty one.
        return _one_of(name, domain, [value], negated=False) if closed else []
    return [{name: (Between(name, domain, None, False, value, closed),)}]


def _one_of(name: str, domain: Domain, points: list[Scalar], negated: bool) -> list[_Draft]:
    constraint = _points(name, domain, set(points), negated)
    return [] if constraint is None else [{name: (constraint,)}]


def _points(name: str, domain: Domain, points: set[Scalar], negated: bool) -> OneOf | None:
    if negated and domain is Domain.BOOLEAN:
        points, negated = {each for each in (True, False) if each not in points}, False
    if not points:
        return None
    ordered: list[Any] = list(points)
    ordered.sort()
    return OneOf(name, domain, tuple(ordered), negated)


def _like(name: str, pattern: str, escape: str | None, negated: bool) -> list[_Draft]:
    parts, kinds = parse_pattern(pattern, escape)
    if not any(kinds):
        return _one_of(name, Domain.STRING, ["".join(parts)], negated)
    if parts == ("%",) and kinds == (True,):
        # Any string at all, which is also the range of all strings.
        return [] if negated else [{name: (Between(name, Domain.STRING, "", True, None, False),)}]
    shape, text = shape_of(parts, kinds)
    return [{name: (Pattern(name, shape, text, parts, kinds, negated),)}]


# --- merging what is said about one attribute -----------------------------------------------------------


def _merged(
    name: str, ours: tuple[Constraint, ...], theirs: tuple[Constraint, ...]
) -> tuple[Constraint, ...] | None:
    """The conjunction of constraints on one attribute in canonical form, or None for a contradiction."""
    domain: Domain | None = None
    bounds: Between | None = None
    allowed: set[Scalar] | None = None
    excluded: set[Scalar] = set()
    others: dict[Pattern | Contains, None] = {}
    absent = present = False
    for constraint in ours + theirs:
        assert not isinstance(constraint, Computed)
        if isinstance(constraint, Presence):
            absent = absent or not constraint.present
            present = present or constraint.present
            continue
        found = domain_of_constraint(constraint)
        if domain is None:
            domain = found
        elif domain is not found:
            return None
        if isinstance(constraint, Between):
            bounds = constraint if bounds is None else _intersection(bounds, constraint)
        elif isinstance(constraint, Pattern | Contains):
            others[constraint] = None
        elif isinstance(constraint, OneOf):
            if constraint.negated:
                excluded.update(constraint.values)
            else:
                allowed = set(constraint.values) if allowed is None else allowed & set(constraint.values)
    if domain is None:
        return None if absent and present else (Presence(name, present),)
    if absent or any(replace(each, negated=not each.negated) in others for each in others):
        return None

    if bounds is not None:
        low: Any = bounds.low
        high: Any = bounds.high
        if low is None or high is None or low < high:
            bounds = _trimmed(bounds, excluded)
        elif low == high and bounds.low_closed and bounds.high_closed:
            allowed = {low} if allowed is None else allowed & {low}
            bounds = None
        else:
            return None
    rest: list[Between | Pattern | Contains] = [*others] if bounds is None else [bounds, *others]

    def possible(value: Scalar) -> bool:
        return all(constraint_holds_for_value(each, value) for each in rest)

    if allowed is not None:
        points = _points(name, domain, {each for each in allowed - excluded if possible(each)}, negated=False)
        return None if points is None else (points,)

    # Values that the rest rules out anyway need not be excluded.
    outside = {each for each in excluded if possible(each)}
    result: list[Constraint] = []
    if bounds is not None and not (_is_every_string(bounds) and (others or outside)):
        result.append(bounds)
    if outside:
        points = _points(name, domain, outside, negated=True)
        if points is None:
            return None
        result.append(points)
    result.extend(sorted(others, key=repr))
    return tuple(result)


def _intersection(one: Between, other: Between) -> Between:
    """The narrower bounds of two constraints of one domain; the result may be empty or a point."""
    lows: list[Any] = [(each.low, not each.low_closed) for each in (one, other) if each.low is not None]
    highs: list[Any] = [(each.high, each.high_closed) for each in (one, other) if each.high is not None]
    low, low_open = max(lows, default=(None, True))
    high, high_closed = min(highs, default=(None, False))
    return Between(one.attribute, one.domain, low, not low_open, high, high_closed)


def _trimmed(bounds: Between, excluded: set[Scalar]) -> Between:
    """`x >= 5 AND x <> 5` is `x > 5`; and every string is at least the empty one."""
    if bounds.low_closed and bounds.low in excluded:
        bounds = replace(bounds, low_closed=False)
    if bounds.high_closed and bounds.high in excluded:
        bounds = replace(bounds, high_closed=False)
    if bounds.low == "" and bounds.low_closed and bounds.high is not None:
        bounds = replace(bounds, low=None, low_closed=False)
    return bounds


def _is_every_string(bounds: Between) -> bool:
    return bounds.low == "" and bounds.low_closed and bounds.high is None
