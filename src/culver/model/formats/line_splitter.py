"""Cuts the chunks of an NDJSON stream into numbered lines."""


class LineSplitter:
    """Holds one unfinished line of at most `max_bytes`. A longer line comes as None, once, as soon as it is known."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self._skipping = False
        self._number = 1

    def feed(self, chunk: bytes) -> list[tuple[int, bytes | None]]:
        first, *others = chunk.split(b"\n")
        self._rest += first
        complete: list[bytes] = []
        if others:
            complete = [bytes(self._rest), *others[:-1]]
            self._rest = bytearray(others[-1])
        lines: list[tuple[int, bytes | None]] = []
        for line in complete:
            if not self._skipping:
                lines.append((self._number, line if len(line) <= self._max_bytes else None))
            self._skipping = False
            self._number += 1
        if len(self._rest) > self._max_bytes and not self._skipping:
            lines.append((self._number, None))
            self._skipping = True
        if self._skipping:
            self._rest.clear()
        return lines

    def end(self) -> list[tuple[int, bytes | None]]:
        """The last line, unless it ended with a line feed."""
        line = bytes(self._rest)
        self._rest.clear()
        return [(self._number, line)] if line else []
