"""The frames that wait for one link: urgent ones before data, both within bounds."""

from collections import deque


class OutputQueue:
    """Holds packed frames. Among urgent frames, and among those of data, the order is kept."""

    def __init__(self, most_data_bytes: int, most_urgent_bytes: int) -> None:
        self._most_data_bytes = most_data_bytes
        self._most_urgent_bytes = most_urgent_bytes
        self._urgent: deque[bytes] = deque()
        self._data: deque[bytes] = deque()
        self._urgent_bytes = 0
        self._data_bytes = 0

    @property
    def queued_bytes(self) -> int:
        return self._urgent_bytes + self._data_bytes

    def add(self, frame: bytes, *, urgent: bool) -> bool:
        """False: the frame exceeds its bound and is not added. An empty queue takes every frame."""
        if urgent:
            if self._urgent and self._urgent_bytes + len(frame) > self._most_urgent_bytes:
                return False
            self._urgent.append(frame)
            self._urgent_bytes += len(frame)
        else:
            if self._data and self._data_bytes + len(frame) > self._most_data_bytes:
                return False
            self._data.append(frame)
            self._data_bytes += len(frame)
        return True

    def take(self, about_bytes: int) -> list[bytes]:
        """Removes and returns the next frames: one at least if there is any, more while they stay within
        ``about_bytes``."""
        taken: list[bytes] = []
        room = about_bytes
        while frames := self._urgent or self._data:
            if taken and len(frames[0]) > room:
                break
            frame = frames.popleft()
            room -= len(frame)
            if frames is self._urgent:
                self._urgent_bytes -= len(frame)
            else:
                self._data_bytes -= len(frame)
            taken.append(frame)
        return taken

    def clear(self) -> None:
        self._urgent.clear()
        self._data.clear()
        self._urgent_bytes = self._data_bytes = 0
