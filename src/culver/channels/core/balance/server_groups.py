"""The groups of servers of a plan entry, and how they change."""

from collections.abc import Container

Groups = tuple[tuple[int, ...], ...]


def servers_of(groups: Groups) -> list[int]:
    """All servers, group by group."""
    return [server for group in groups for server in group]


def replaced(groups: Groups, old: int, new: int) -> Groups:
    return tuple(tuple(new if server == old else server for server in group) for group in groups)


def without(groups: Groups, gone: Container[int]) -> Groups:
    """The groups without some servers; groups that become empty are left out."""
    rest = (tuple(server for server in group if server not in gone) for group in groups)
    return tuple(group for group in rest if group)


def show(groups: Groups) -> str:
    """For people: ``[1+2 3]`` has the groups (1, 2) and (3,)."""
    return "[" + " ".join("+".join(map(str, group)) for group in groups) + "]"
