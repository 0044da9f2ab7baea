"""Which version of the filters a micro-batch uses."""

from culver.spark.matching.filter_versions import FilterVersions


def test_all_tasks_of_a_batch_get_the_version_of_the_first() -> None:
    versions = FilterVersions("a")
    assert versions.choose("query", 7) == "a"
    versions.replace("b")
    assert versions.choose("query", 7) == "a"
    assert versions.choose("query", 8) == "b"
    assert versions.choose("other", 7) == "b"
    assert versions.choose("query", 7) == "a"


def test_versions_are_in_use_until_no_batch_may_ask_for_them() -> None:
    versions = FilterVersions("a")
    versions.choose("query", 0)
    versions.replace("b")
    versions.replace("c")
    assert versions.in_use() == {"a", "c"}
    for batch in range(1, 5):
        versions.choose("query", batch)
    assert versions.in_use() == {"c"}


def test_a_query_that_has_ended_uses_no_version() -> None:
    versions = FilterVersions("a")
    versions.choose("query", 0)
    versions.replace("b")
    versions.forget("query")
    assert versions.in_use() == {"b"}


def test_old_queries_are_forgotten_where_there_are_many() -> None:
    versions = FilterVersions("a")
    versions.choose("first", 0)
    versions.replace("b")
    for query in range(64):
        versions.choose(f"{query}", 0)
    assert versions.in_use() == {"b"}
    assert versions.choose("first", 0) == "b"
