"""Which version of replaceable filters a micro-batch uses. The core of `filter_server`: it does no input or output.

replace(b)   current = b
choose(query, 7)  -> b     decided by the first task of batch 7 that asks
replace(c)   current = c
choose(query, 7)  -> b     the other tasks of batch 7, and those that Spark runs again
choose(query, 8)  -> c
"""

from collections import OrderedDict

_BATCHES = 4  # of a query: Spark may repeat the last one, and asks for no older one
_QUERIES = 64


class FilterVersions:
    """Versions are named by the digest of their content. Not thread-safe."""

    def __init__(self, version: str) -> None:
        self.current = version
        self._chosen: OrderedDict[str, OrderedDict[int, str]] = OrderedDict()

    def replace(self, version: str) -> None:
        self.current = version

    def choose(self, query: str, batch: int) -> str:
        """The version for a micro-batch of a streaming query: the same one each time."""
        batches = self._chosen.setdefault(query, OrderedDict())
        self._chosen.move_to_end(query)
        chosen = batches.setdefault(batch, self.current)
        while len(batches) > _BATCHES:
            batches.popitem(last=False)
        while len(self._chosen) > _QUERIES:
            self._chosen.popitem(last=False)
        return chosen

    def forget(self, query: str) -> None:
        """The query has ended."""
        self._chosen.pop(query, None)

    def in_use(self) -> set[str]:
        """The versions that somebody may still ask for."""
        return {self.current, *(each for batches in self._chosen.values() for each in batches.values())}
