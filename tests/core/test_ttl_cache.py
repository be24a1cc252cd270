"""A cache that forgets by time and by size."""

from __future__ import annotations

from dodona.core.ttl_cache import TtlCache


class Watch:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def cache(watch: Watch | None = None, *, max_size: int = 10) -> TtlCache[str, int]:
    return TtlCache(5.0, max_size=max_size, clock=watch or Watch())


def test_a_value_is_there_until_it_expires() -> None:
    """Up to that moment and not at it; to put it again starts anew."""
    watch = Watch()
    numbers = cache(watch)
    numbers.put("a", 1)
    watch.now += 4.5
    assert (numbers.get("a"), numbers.seconds_left("a")) == (1, 0.5)
    watch.now += 0.5
    assert (numbers.get("a"), numbers.seconds_left("a")) == (None, 0.0)
    numbers.put("a", 2)
    assert (numbers.get("a"), numbers.seconds_left("a")) == (2, 5.0)


def test_an_expired_value_can_still_be_found() -> None:
    """By those who ask for it: what was valid once may be treated better than what never was."""
    watch = Watch()
    numbers = cache(watch)
    numbers.put("a", 1)
    watch.now += 60
    assert (numbers.get("a"), numbers.get_stale("a"), "a" in numbers) == (None, 1, True)
    numbers.discard("a")
    assert (numbers.get_stale("a"), "a" in numbers) == (None, False)


def test_a_value_can_be_expired_early() -> None:
    """It is stale then; of what is not there, nothing is kept."""
    numbers = cache()
    numbers.put("a", 1)
    numbers.expire("a")
    numbers.expire("b")
    assert (numbers.get("a"), numbers.get_stale("a"), numbers.seconds_left("a")) == (None, 1, 0.0)
    assert "b" not in numbers


def test_it_does_not_grow_beyond_its_size() -> None:
    """The value that was put first goes; one that is replaced makes no room."""
    numbers = cache(max_size=3)
    for name in "abcabd":
        numbers.put(name, 1)
    assert len(numbers) == 3
    assert [name for name in "abcd" if name in numbers] == ["a", "b", "d"]
    for number in range(1000):
        numbers.put(str(number), number)
    assert len(numbers) == 3


def test_what_was_never_there() -> None:
    """It has no value and no time left."""
    numbers = cache()
    numbers.discard("a")
    assert (numbers.get("a"), numbers.get_stale("a"), numbers.seconds_left("a")) == (None, None, 0)
