"""A URL is read in one way only, and what other programs may read differently is refused."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.outbound.attacks import FORBIDDEN_IPV4, numbers
from tests.tables import table
from vinery_accounts.outbound.addresses import read_address
from vinery_accounts.outbound.urls import Url, UrlRefused, join, read_url


@table(
    "text, read",
    [
        ("https://example.com", "https://example.com/"),
        ("HTTPS://EXAMPLE.Com:443/A?b=C#d", "https://example.com/A?b=C"),
        ("http://example.com:8080?q", "http://example.com:8080/?q"),
        ("https://example.com./a", "https://example.com/a"),
        ("https://bücher.example/ä", "https://xn--bcher-kva.example/%C3%A4"),
        ("https://BÜCHER.example/%c3%a4", "https://xn--bcher-kva.example/%c3%a4"),
        ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
        ("https://my_bucket.s3.example/", "https://my_bucket.s3.example/"),
        ("https://192.0.2.1:1/", "https://192.0.2.1:1/"),
        ("https://192.0.2.1./", "https://192.0.2.1/"),
        ("https://[2001:DB8:0:0::1]:8443/", "https://[2001:db8::1]:8443/"),
        ('https://example.com/{a}|<b>"', "https://example.com/%7Ba%7D%7C%3Cb%3E%22"),
        ("https://example.com/a@b:c;d", "https://example.com/a@b:c;d"),
        ("https://1.example/", "https://1.example/"),
        ("https://0x.example/", "https://0x.example/"),
    ],
)
def test_a_url_has_one_form(text: str, read: str) -> None:
    assert str(read_url(text)) == read
    assert read_url(read) == read_url(text)


def test_the_parts_of_a_url_are_those_of_a_connection() -> None:
    assert read_url("http://[::1]:81/a?b") == Url("http", "::1", 81, "/a?b")
    assert read_url("http://[::1]:81/").authority == "[::1]:81"
    assert read_url("https://example.com/").authority == "example.com"


@table(
    "text, reason",
    [
        ("", "begins with https"),
        ("example.com", "begins with https"),
        ("https:example.com", "begins with https"),
        ("https:/example.com", "begins with https"),
        ("//example.com", "begins with https"),
        ("ftp://example.com/", "starts with https"),
        ("file:///etc/passwd", "starts with https"),
        ("https://", "letters, digits"),
        ("https:///example.com", "letters, digits"),
        ("https://.example.com", "letters, digits"),
        ("https://example..com", "letters, digits"),
        ("https://example.com..", "letters, digits"),
        ("https://-example.com", "letters, digits"),
        ("https://exa!mple.com", "letters, digits"),
        ("https://exa,mple.com", "letters, digits"),
        (f"https://{'a' * 64}.com", "letters, digits"),
        (f"https://{'a.' * 127}com", "letters, digits"),
        ("https://me@example.com", "user"),
        ("https://me:word@example.com", "user"),
        ("https://@example.com", "user"),
        ("https://example.com%2f", "percent"),
        ("https://example.com\\@127.0.0.1", "backslash"),
        ("https://example.com/a\\b", "backslash"),
        ("https://example.com/ a", "spaces"),
        ("https://example.com/\r\nx: y", "spaces"),
        ("https://example.com/\0", "spaces"),
        ("https://exam\u00adple.com", "spaces"),
        ("https://example.com/\u202egnp", "spaces"),
        ("https://example.com/\ud800", "spaces"),
        ("https://example.com:", "port"),
        ("https://example.com:0", "port"),
        ("https://example.com:65536", "port"),
        ("https://example.com:0443", "port"),
        ("https://example.com:443x", "port"),
        ("https://example.com:\uff14\uff14\uff13", "port"),
        ("https://[::1", "brackets"),
        ("https://::1/", "letters, digits"),
        ("https://[::1]a/", "brackets"),
        ("https://[::1%25lo]/", "percent"),
        ("https://[127.0.0.1]/", "IPv6"),
        ("https://[v1.a]/", "IPv6"),
        ("https://ex\uff41mple.com", "punycode"),
        ("https://example\u3002com", "punycode"),
        ("https://\u24d4xample.com", "punycode"),
        ("https://a.xn--.com", "letters, digits"),
        ("https://xn--zzzzzzz9999.com", "xn--"),
        ("https://xn--a.com", "xn--"),
        ("https://example.com/" + "a" * 8192, "characters"),
    ],
)
def test_a_url_that_can_be_misread_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(UrlRefused, match=reason):
        read_url(text)


@table(
    "host, notation",
    [
        ("2130706433", "as one number"),
        ("0x7f000001", "in hexadecimal"),
        ("0X7F.1", "in hexadecimal"),
        ("127.0.0.0x1", "in hexadecimal"),
        ("0177.0.0.1", "in octal"),
        ("127.0.0.01", "in octal"),
        ("127.1", "in a short form"),
        ("127.0.1.", "in a short form"),
        ("1.2.3.4.5", "in another form"),
        ("example.1", "in a short form"),
        ("256.1.1.1", "in another form"),
    ],
)
def test_odd_notations_of_addresses_are_refused_by_name(host: str, notation: str) -> None:
    with pytest.raises(UrlRefused, match=f"not {notation}"):
        read_url(f"http://{host}/")


def test_no_notation_but_four_decimal_numbers_is_read_as_an_address() -> None:
    for ip in FORBIDDEN_IPV4:
        for text in numbers(ip):
            with pytest.raises(UrlRefused, match="four decimal numbers"):
                read_url(f"http://{text}/")


@table(
    "location, target",
    [
        ("https://b.example/x", "https://b.example/x"),
        ("//b.example/x", "https://b.example/x"),
        ("/x?y#z", "https://a.example/x?y"),
        ("x", "https://a.example/d/x"),
        ("../x", "https://a.example/x"),
        ("?x", "https://a.example/d/f?x"),
        ("http://a.example:8080", "http://a.example:8080/"),
    ],
)
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
