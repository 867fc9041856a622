"""A URL is read in one way only, and a URL that other programs may read differently is refused."""

import json
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.outbound.attacks import FORBIDDEN_IPV4, numbers
from tests.tables import table
from vinery_accounts.outbound.addresses import read_address
from vinery_accounts.outbound.urls import Url, UrlRefused, join, read_url

URLS = json.loads(Path(__file__).with_name("urls.json").read_text(encoding="utf-8"))


@table("text, read", URLS["read"])
def test_a_url_has_one_form(text: str, read: str) -> None:
    assert str(read_url(text)) == read
    assert read_url(read) == read_url(text)


def test_the_parts_of_a_url_are_those_of_a_connection() -> None:
    assert read_url("http://[::1]:81/a?b") == Url("http", "::1", 81, "/a?b")
    assert read_url("http://[::1]:81/").authority == "[::1]:81"
    assert read_url("https://example.com/").authority == "example.com"


TOO_LONG = [
    (f"https://{'a.' * 127}com", "letters, digits"),
    ("https://example.com/" + "a" * 8192, "characters"),
]


@table("text, reason", [*URLS["misread"], *TOO_LONG])
def test_a_url_that_can_be_misread_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(UrlRefused, match=reason):
        read_url(text)


def test_no_notation_but_four_decimal_numbers_is_read_as_an_address() -> None:
    for ip in FORBIDDEN_IPV4:
        for text in numbers(ip):
            with pytest.raises(UrlRefused, match="four decimal numbers"):
                read_url(f"http://{text}/")


@table("location, target", URLS["joined"])
def test_a_redirect_leads_to_a_url(location: str, target: str) -> None:
    assert str(join(read_url("https://a.example/d/f?q"), location)) == target


@table(
    "location",
    [
        *("file:///etc/passwd", "//user@b.example", "/\\b.example", "https://2130706433", "//[::1"),
        *("\thttps://b.example", "https://b.example\n", "gopher://b.example/", "data:,x"),
        "http://",
    ],
)
def test_a_redirect_is_read_as_strictly_as_the_first_url(location: str) -> None:
    with pytest.raises(UrlRefused):
        join(read_url("https://a.example/d/f"), location)


_PARTS = st.sampled_from(
    [
        *("http", "https", "://", "//", ":", "/", "@", "[", "]", "%", "%2e", "\\", "?", "#", "."),
        *("-", "0x7f", "0177", "127", "1", "2130706433", "example", "xn--", "xn--bcher-kva", "::1"),
        *("80", "\u3002", "\uff0e", "\uff11", "\u0660", "\u212a", "\u0130", "\u00df", "\u200d"),
        *("\ud800", " ", "\t", "\n", "\0", "e", "_"),
    ]
)


@given(st.sampled_from(["http://", ""]), st.lists(_PARTS, max_size=12).map("".join))
def test_what_is_read_has_one_form_and_no_odd_notation(beginning: str, text: str) -> None:
    try:
        url = read_url(beginning + text)
    except UrlRefused:
        return
    assert read_url(str(url)) == url
    assert str(url).isascii()
    assert not set(url.host) & set("/\\@%?#[] ")
    if read_address(url.host) is None:
        with pytest.raises(OSError, match="illegal IP address"):
            socket.inet_aton(url.host)
