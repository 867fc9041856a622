"""Names of hosts in rules: lower case, punycode, and none with two readings."""

import pytest

from tests.tables import table
from vinery_serving.media.tables.values import ascii_host, host_pattern, overlaps


@table(
    "text, host",
    [
        ("Images.Example.ORG", "images.example.org"),
        (" images.example.org. ", "images.example.org"),
        ("Bücher.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ("例え.テスト", "xn--r8jz45g.xn--zckzah"),
        ("minio", "minio"),
        ("my_service.internal", "my_service.internal"),
        ("192.0.2.1", "192.0.2.1"),
        ("[2001:DB8::1]", "2001:db8::1"),
        ("2001:db8:0:0::1", "2001:db8::1"),
    ],
)
def test_a_host_has_one_notation(text: str, host: str) -> None:
    assert ascii_host(text) == host
    assert ascii_host(host) == host


@table(
    "text",
    [
        *("", ".", "a..example", "-a.example", "a-.example", "a b.example", "a" * 64),
        *("a.example" * 40, "1", "127.1", "0x7f000001", "017700000001", "1.2.3.256", "256.1"),
        *("a@b.example", "a.example:80", "//a.example", "a.example/b", "a.example?b", "a#b"),
        *("*", "*.a.example", "a*.example", "xn--a", "a\u0000.example", "a%2e.example"),
    ],
)
def test_what_is_no_host_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"[.A-Z]"):
        ascii_host(text)


def test_a_pattern_may_begin_with_a_wildcard_that_does_not_allow_too_much() -> None:
    assert host_pattern(" *.CDN.example.org ") == "*.cdn.example.org"
    for text in ("*", "*.", "*.org", "*.*.example.org", "*example.org", "**.a.b"):
        with pytest.raises(ValueError, match=r"\*"):
            host_pattern(text)


@table(
    "one, other, expected",
    [
        ("a.example.org", "a.example.org", True),
        ("a.example.org", "*.example.org", True),
        ("*.b.example.org", "*.example.org", True),
        ("example.org", "*.example.org", False),
        ("badexample.org", "*.example.org", False),
        ("a.example.org", "b.example.org", False),
    ],
)
def test_patterns_overlap_if_a_host_matches_both(one: str, other: str, expected: bool) -> None:
    assert overlaps(one, other) is expected
    assert overlaps(other, one) is expected
