"""Which sets of categories to keep: covered ones go, rare forms become coarser, too many sets become fewer and wider.

    {equal A, least 16}  {equal A}               the first is covered: whatever has its categories has the second's
    {equal A, equal B}  {equal A, equal C}       both become {equal A} if there are too many sets

The result depends on the sets alone, not on the order in which they came, so two sites with the same subscriptions
advertise the same.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from itertools import combinations

from culver.matching.encoded.constraint_options import CategorySet
from culver.matching.encoded.forms import (
    EXISTS,
    Category,
    CategoryForm,
    coarsened,
    existence,
    hash_category,
    is_coarser,
)

# Levels that a kind of category of one attribute may have; an event has a category of each.
_MOST_LEVELS = 4

HashedSet = frozenset[int]
EVERYTHING: HashedSet = frozenset()


def choose_forms(sets: Iterable[CategorySet], most_forms: int) -> dict[CategoryForm, CategoryForm | None]:
    """What becomes of each form: itself, a coarser one, or None for nothing at all. An event has categories of all
    forms that are used, so the rare ones are not worth it."""
    used = Counter(form for each in sets for form, _ in each)
    families: dict[tuple[str, str, str], list[CategoryForm]] = defaultdict(list)
    for form in used:
        families[form[:3]].append(form)
    chosen: dict[CategoryForm, CategoryForm | None] = {}
    for family in families.values():
        kept = sorted(family, key=lambda form: (-used[form], form))[:_MOST_LEVELS]
        chosen.update((form, form if form in kept else _coarser(form, kept)) for form in family)
    weights: Counter[CategoryForm] = Counter()
    for form, becomes in chosen.items():
        assert becomes is not None
        weights[becomes] += used[form]
    rare = set(sorted(weights, key=lambda form: (-weights[form], form))[most_forms:])
    return (
        {form: None if becomes in rare else becomes for form, becomes in chosen.items()} if rare else chosen
    )


def _coarser(form: CategoryForm, kept: Collection[CategoryForm]) -> CategoryForm:
    """The finest kept form that is coarser."""
    found = existence(form)
    for each in kept:
        if is_coarser(each, form) and (found.kind == EXISTS or is_coarser(found, each)):
            found = each
    return found


def hashed_sets(
    sets: Iterable[CategorySet], forms: dict[CategoryForm, CategoryForm | None]
) -> tuple[set[HashedSet], dict[int, Category]]:
    """The sets in the chosen forms, as hashes, and what the hashes stand for."""
    categories: dict[int, Category] = {}
    known: dict[Category, int | None] = {}
    result: set[HashedSet] = set()
    for each in sets:
        members = []
        for category in each:
            hashed = known.get(category, -1)
            if hashed == -1:
                form = forms[category.form]
                hashed = None
                if form is not None:
                    becomes = category if form == category.form else coarsened(category, form)
                    hashed = hash_category(becomes)
                    categories[hashed] = becomes
                known[category] = hashed
            if hashed is not None:
                members.append(hashed)
        result.add(frozenset(members))
    return result, categories


def without_covered(sets: set[HashedSet]) -> set[HashedSet]:
    """The sets that have no other one within them."""
    if EVERYTHING in sets:
        return {EVERYTHING}
    sizes = sorted({len(each) for each in sets})
    return {
        each
        for each in sets
        if not any(
            frozenset(part) in sets for size in sizes if size < len(each) for part in combinations(each, size)
        )
    }


def reduced_to(most: int, sets: set[HashedSet], categories: dict[int, Category]) -> set[HashedSet]:
    """At most so many sets, without covered ones. Sets become wider: the largest ones first lose their rarest
    categories, and most readily where several then coincide; at last, single categories become existence. May add to
    `categories`."""
    sets = without_covered(sets)
    while len(sets) > most:
        size = max(map(len, sets))
        if size == 1:
            return _with_existences(most, sets, categories)
        used = Counter(category for each in sets for category in each)
        groups: dict[HashedSet, list[HashedSet]] = defaultdict(list)
        for each in sets:
            if len(each) == size:
                groups[each - {min(each, key=lambda category: (used[category], category))}].append(each)
        excess = len(sets) - most
        for wider, members in sorted(groups.items(), key=lambda group: (-len(group[1]), sorted(group[0]))):
            excess -= len(members) - (wider not in sets)
            sets.difference_update(members)
            sets.add(wider)
            if excess <= 0:
                break
        sets = without_covered(sets)
    return sets


def _with_existences(most: int, sets: set[HashedSet], categories: dict[int, Category]) -> set[HashedSet]:
    """At most so many sets, of one category each: those of the attributes with the most of them become existence."""
    families: dict[CategoryForm, list[HashedSet]] = defaultdict(list)
    for each in sets:
        (category,) = each
        families[existence(categories[category].form)].append(each)
    for form, members in sorted(families.items(), key=lambda family: (-len(family[1]), family[0])):
        if len(sets) <= most:
            return sets
        sets.difference_update(members)
        hashed = hash_category(Category(form))
        categories[hashed] = Category(form)
        sets.add(frozenset((hashed,)))
    return sets if len(sets) <= most else {EVERYTHING}
