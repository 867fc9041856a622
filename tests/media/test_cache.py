"""The cache keeps files for a short time, within one project, and within its bytes."""

import hashlib

from tests.fakes.clock import FakeClock
from vinery_serving.media.cache import Content, MediaCache


def put(cache: MediaCache, owner: str, key: str, data: bytes) -> None:
    cache.put(owner, key, Content(data, "image/png", 9), hashlib.sha256(data).digest())


def data_of(cache: MediaCache, owner: str, key: str) -> bytes | None:
    content = cache.get(owner, key)
    return None if content is None else content.data


def test_a_file_is_kept_for_its_project_and_a_short_time_only() -> None:
    clock = FakeClock()
    cache = MediaCache(1000, 60, clock)
    put(cache, "a", "url", b"picture")
    assert data_of(cache, "a", "url") == b"picture"
    assert data_of(cache, "b", "url") is None
    assert data_of(cache, "a", "other") is None
    clock.pass_s(59)
    assert data_of(cache, "a", "url") == b"picture"
    clock.pass_s(1)
    assert data_of(cache, "a", "url") is None
    assert cache.num_bytes == 0


def test_equal_bytes_of_one_project_are_kept_once_and_later_ones_replace_those_before() -> None:
    cache = MediaCache(1000, 60)
    for key in ("one", "two"):
        put(cache, "a", key, bytes(bytearray(b"x" * 400)))
    assert cache.num_bytes == 400
    assert data_of(cache, "a", "one") is data_of(cache, "a", "two")
    put(cache, "b", "one", bytes(bytearray(b"x" * 400)))
    assert cache.num_bytes == 800
    assert data_of(cache, "b", "one") is not data_of(cache, "a", "one")
    cache = MediaCache(1000, 60)
    put(cache, "a", "url", b"x" * 300)
    put(cache, "a", "url", b"y" * 200)
    assert data_of(cache, "a", "url") == b"y" * 200
    assert cache.num_bytes == 200


def test_the_cache_is_bounded_and_the_least_recently_used_files_leave_first() -> None:
    cache = MediaCache(1000, 60)
    for key in ("one", "two", "three"):
        put(cache, "a", key, key.encode().ljust(300))
    assert data_of(cache, "a", "one")
    put(cache, "a", "four", b"four".ljust(300))
    assert data_of(cache, "a", "two") is None
    assert data_of(cache, "a", "one")
    assert cache.num_bytes == 900
    cache = MediaCache(1000, 60)
    put(cache, "a", "url", b"x" * 501)
    assert data_of(cache, "a", "url") is None
    assert cache.num_bytes == 0
    cache = MediaCache(1000, 60)
    for number in range(2000):
        put(cache, "a", str(number), b"")
    assert data_of(cache, "a", "0") is None
    assert data_of(cache, "a", "1999") == b""
    assert sum(data_of(cache, "a", str(each)) is not None for each in range(2000)) == 1024
