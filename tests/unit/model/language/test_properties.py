"""What holds for every filter: clauses mean what the tree means, text survives a round trip, no crash."""

import random
import string

import pytest
from hypothesis import given, settings

from culver.config import FilterSettings
from culver.errors import InvalidFilter
from culver.model.event import Event
from culver.model.language.normalisation import clauses_of
from culver.model.language.parser import parse
from culver.model.language.predicate import Condition, Predicate, evaluate, matching_clause
from culver.model.language.rendering import clause_text
from support.events import events, random_event
from support.filters import (
    clause_lines,
    conditions,
    parsed_or_refused,
    random_filter,
    random_soup,
    token_soup,
)

ROOMY = FilterSettings(max_clauses=4096, max_constraints=65_536, max_depth=128, max_length=1_000_000)


@pytest.mark.slow(seconds=3)
def test_clauses_match_exactly_where_the_tree_is_true() -> None:
    seed = 1
    rng = random.Random(seed)
    results = {True: 0, False: 0, None: 0}
    for _ in range(8_000):
        text = random_filter(rng)
        predicate = parse(text)
        for _ in range(2):
            event = random_event(rng)
            result = evaluate(predicate.condition, event)
            matched = matching_clause(predicate, event)
            assert (result is True) is (matched is not None), (seed, text, event)
            results[result] += 1
    # The pools are made so that every outcome is common.
    assert min(results.values()) > 1_500, results


@settings(max_examples=400, deadline=None, derandomize=True)
@given(conditions(), events())
def test_clauses_of_any_tree_match_exactly_where_it_is_true(condition: Condition, event: Event) -> None:
    predicate = Predicate("", condition, clauses_of(condition, ROOMY))
    matched = matching_clause(predicate, event)
    assert (evaluate(condition, event) is True) is (matched is not None)


@pytest.mark.slow(seconds=2)
def test_rendered_clauses_parse_to_the_same_clauses() -> None:
    rng = random.Random(2)
    for _ in range(3_000):
        text = random_filter(rng)
        predicate = parse(text)
        again = parse(" OR ".join(clause_lines(predicate)) or "FALSE", ROOMY)
        assert again.clauses == predicate.clauses, text


@settings(max_examples=300, deadline=None, derandomize=True)
@given(conditions())
def test_each_rendered_clause_of_any_tree_is_a_filter_of_that_clause(condition: Condition) -> None:
    for clause in clauses_of(condition, ROOMY):
        text = clause_text(clause)
        # Trees may hold what no text gives, such as `1 / 0` or a sum compared with a string.
        answer = parsed_or_refused(text, ROOMY)
        if isinstance(answer, InvalidFilter):
            assert any(word in answer.message for word in ("arithmetic", "finite", "booleans")), text
        else:
            assert answer.clauses == (clause,), text


@pytest.mark.slow(seconds=2)
def test_garbage_and_token_soup_end_in_an_answer() -> None:
    rng = random.Random(3)
    characters = string.printable + "éßж\u0301\u200b\ud800\U0001f642"
    accepted = 0
    for i in range(8_000):
        if i % 4 == 0:
            text = "".join(rng.choices(characters, k=rng.randrange(1, 30)))
        elif i % 4 == 1:
            good = random_filter(rng)
            cut = rng.randrange(len(good))
            text = good[:cut] + rng.choice(characters) * rng.randrange(2) + good[cut + 1 :]
        else:
            text = random_soup(rng)
        answer = parsed_or_refused(text)
        if isinstance(answer, InvalidFilter):
            assert 0 <= answer.details["position"] <= len(text), text
            assert answer.details["expected"], text
        else:
            accepted += 1
    assert accepted > 100


@settings(max_examples=300, deadline=None, derandomize=True)
@given(token_soup())
def test_tokens_in_any_order_are_accepted_or_refused(text: str) -> None:
    answer = parsed_or_refused(text)
    if isinstance(answer, Predicate):
        again = parse(" OR ".join(clause_lines(answer)) or "FALSE")
        assert again.clauses == answer.clauses
