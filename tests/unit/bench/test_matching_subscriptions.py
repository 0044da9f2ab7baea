"""Subscriptions drawn without their texts say what the texts say."""

import pytest

from culver.bench.matching.drawn_subscriptions import draw
from culver.bench.workloads import WORKLOADS, named
from culver.model.language.parser import parse

SEED = 11


@pytest.mark.parametrize("name", WORKLOADS)
def test_predicates_have_the_clauses_that_the_workloads_texts_have(name: str) -> None:
    count = 60 if name == "W3" else 300
    made = dict(draw(named(name), count, SEED).predicates())
    texts = named(name).filters(count, SEED)
    assert sorted(made) == list(range(count))
    for number, text in enumerate(texts):
        assert made[number].clauses == parse(text).clauses


@pytest.mark.parametrize("name", ["W1", "W2"])
def test_forms_with_their_values_put_in_are_the_workloads_texts(name: str) -> None:
    texts = named(name).filters(200, SEED)
    subscriptions = draw(named(name), 200, SEED)
    assert sum(len(form.numbers) for form in subscriptions.forms) == 200
    for form in subscriptions.forms:
        for number, *values in zip(form.numbers.tolist(), *(c.tolist() for c in form.columns), strict=True):
            text = form.text
            for value in values:
                text = text.replace("?", repr(value), 1)
            assert parse(text).clauses == parse(texts[number]).clauses
