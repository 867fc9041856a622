"""The cache keeps files within its bytes. For how long: see `test_fetching`."""

from vinery_serving.media.fetching import Fetched, MediaCache


def put(cache: MediaCache, key: str, data: bytes) -> None:
    cache.put(key, Fetched(data, "image/png", 9))


def data_of(cache: MediaCache, key: str) -> bytes | None:
    fetched = cache.get(key)
    return None if fetched is None else fetched.data


def test_a_later_file_replaces_the_one_before() -> None:
    cache = MediaCache(1000, 60)
    put(cache, "url", b"x" * 300)
    put(cache, "url", b"y" * 200)
    assert data_of(cache, "url") == b"y" * 200
    assert cache.num_bytes == 200


def test_the_cache_is_bounded_and_the_least_recently_used_files_leave_first() -> None:
    cache = MediaCache(1000, 60)
    for key in ("one", "two", "three"):
        put(cache, key, key.encode().ljust(300))
    assert data_of(cache, "one")
    put(cache, "four", b"four".ljust(300))
    assert data_of(cache, "two") is None
    assert data_of(cache, "one")
    assert cache.num_bytes == 900
    cache = MediaCache(1000, 60)
    put(cache, "url", b"x" * 501)
    assert data_of(cache, "url") is None
    assert cache.num_bytes == 0
    cache = MediaCache(1000, 60)
    for number in range(2000):
        put(cache, str(number), b"")
    assert data_of(cache, "0") is None
    assert data_of(cache, "1999") == b""
    assert sum(data_of(cache, str(each)) is not None for each in range(2000)) == 1024
