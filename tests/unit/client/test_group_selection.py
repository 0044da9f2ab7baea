import pytest

from culver.client.receiving.group_selection import GroupSelection
from culver.errors import InvalidRequest


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("set", {"set_name": ""}),
        ("prefix", {"prefix": ""}),
        ("prefix", {"prefix": "a" * 129}),
        ("subscriptions", {"subscriptions": []}),
        ("subscriptions", {"subscriptions": "alerts"}),
        ("subscriptions", {"subscriptions": [1]}),
        ("subscriptions", {"subscriptions": map(str, range(10_001))}),
        ("subscriptions", {"subscriptions": [f"{n:0120}" for n in range(9_000)]}),
    ],
)
def test_what_no_site_accepts_is_refused_by_field(field: str, options: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        GroupSelection(**options)  # type: ignore[arg-type]
    assert refused.value.field == field


def test_a_list_names_each_subscription_once_and_keeps_its_order() -> None:
    message = GroupSelection(subscriptions=["b", "a", "b"]).follow(after=7)
    assert (message.subscriptions, message.set, message.prefix, message.after) == (["b", "a"], None, None, 7)


def test_only_a_prefix_has_no_last_member() -> None:
    assert GroupSelection(set_name="quotes").can_end
    assert GroupSelection(subscriptions=["a"]).can_end
    assert not GroupSelection(prefix="a").can_end
