"""The keys of a simulated Redis server: strings and hashes that may expire."""

from collections.abc import Callable


class ErrorReply(Exception):
    """An error that a server answers; the first word is Redis's error code."""


class RedisKeys:
    """All keys of one server. ``now`` is set before each command. Expired keys vanish when they are looked at."""

    def __init__(self) -> None:
        self.now = 0.0
        self._values: dict[bytes, bytes | dict[bytes, bytes]] = {}
        self._expiries: dict[bytes, float] = {}

    def _value(self, key: bytes) -> bytes | dict[bytes, bytes] | None:
        expiry = self._expiries.get(key)
        if expiry is not None and self.now >= expiry:
            self._forget(key)
        return self._values.get(key)

    def _forget(self, key: bytes) -> None:
        self._values.pop(key, None)
        self._expiries.pop(key, None)

    def _string(self, key: bytes) -> bytes | None:
        value = self._value(key)
        if isinstance(value, dict):
            raise _wrong_type()
        return value

    def _hash(self, key: bytes) -> dict[bytes, bytes]:
        """The hash at a key; an empty one that is not stored if there is none."""
        value = self._value(key)
        if isinstance(value, bytes):
            raise _wrong_type()
        return {} if value is None else value

    def set_key(self, key: bytes, value: bytes, *options: bytes) -> object:
        words = [option.upper() for option in options]
        condition: bytes | None = None
        expiry: float | None = None
        while words:
            word = words.pop(0)
            if word in (b"NX", b"XX") and condition is None:
                condition = word
            elif word in (b"EX", b"PX") and words and expiry is None:
                number = _integer(words.pop(0))
                if number <= 0:
                    raise ErrorReply("ERR invalid expire time in 'set' command")
                expiry = self.now + number / (1 if word == b"EX" else 1_000)
            else:
                raise ErrorReply("ERR syntax error")
        exists = self._value(key) is not None
        if (condition == b"NX" and exists) or (condition == b"XX" and not exists):
            return None
        self._forget(key)
        self._values[key] = value
        if expiry is not None:
            self._expiries[key] = expiry
        return b"OK"

    def get(self, key: bytes) -> object:
        return self._string(key)

    def del_key(self, *keys: bytes) -> object:
        found = 0
        for key in keys:
            found += self._value(key) is not None
            self._forget(key)
        return found

    def exists(self, *keys: bytes) -> object:
        return sum(self._value(key) is not None for key in keys)

    def renamenx(self, key: bytes, new_key: bytes) -> object:
        value = self._value(key)
        if value is None:
            raise ErrorReply("ERR no such key")
        if self._value(new_key) is not None:
            return 0
        self._values[new_key] = value
        if key in self._expiries:
            self._expiries[new_key] = self._expiries[key]
        self._forget(key)
        return 1

    def expire(self, key: bytes, seconds: bytes) -> object:
        number = _integer(seconds)
        if self._value(key) is None:
            return 0
        if number <= 0:
            self._forget(key)
        else:
            self._expiries[key] = self.now + number
        return 1

    def ttl(self, key: bytes) -> object:
        if self._value(key) is None:
            return -2
        expiry = self._expiries.get(key)
        return -1 if expiry is None else int(expiry - self.now + 0.5)

    def hset(self, key: bytes, *pairs: bytes) -> object:
        if len(pairs) % 2:
            raise ErrorReply("ERR wrong number of arguments for 'hset' command")
        fields = self._hash(key)
        before = len(fields)
        fields.update(zip(pairs[::2], pairs[1::2], strict=True))
        self._values[key] = fields
        return len(fields) - before

    def hget(self, key: bytes, field: bytes) -> object:
        return self._hash(key).get(field)

    def hmget(self, key: bytes, *fields: bytes) -> object:
        found = self._hash(key)
        return [found.get(field) for field in fields]

    def hgetall(self, key: bytes) -> object:
        return dict(self._hash(key))

    def hdel(self, key: bytes, *names: bytes) -> object:
        fields = self._hash(key)
        found = sum(fields.pop(name, None) is not None for name in names)
        if not fields:
            self._forget(key)
        return found


#: The name of a command, what carries it out, and the fewest and most arguments behind the name.
KEY_COMMANDS: dict[bytes, tuple[Callable[..., object], int, int | None]] = {
    b"SET": (RedisKeys.set_key, 2, None),
    b"GET": (RedisKeys.get, 1, 1),
    b"DEL": (RedisKeys.del_key, 1, None),
    b"EXISTS": (RedisKeys.exists, 1, None),
    b"RENAMENX": (RedisKeys.renamenx, 2, 2),
    b"EXPIRE": (RedisKeys.expire, 2, 2),
    b"TTL": (RedisKeys.ttl, 1, 1),
    b"HSET": (RedisKeys.hset, 3, None),
    b"HGET": (RedisKeys.hget, 2, 2),
    b"HMGET": (RedisKeys.hmget, 2, None),
    b"HGETALL": (RedisKeys.hgetall, 1, 1),
    b"HDEL": (RedisKeys.hdel, 2, None),
}


def _integer(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        raise ErrorReply("ERR value is not an integer or out of range") from None


def _wrong_type() -> ErrorReply:
    return ErrorReply("WRONGTYPE Operation against a key holding the wrong kind of value")
