"""The organisation's name as a header of answers: every name can be sent."""

from urllib.parse import unquote

import h11
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from vinery_serving.gateway.endpoints.callers import authorization_of, organization_headers

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=100)


@table(
    "name, value",
    [
        ("Acme & Sons (2)", b"Acme & Sons (2)"),
        (" acme ", b"acme"),
        ("Größe", b"Gr%C3%B6%C3%9Fe"),
        ("50 % more", b"50 %25 more"),
        ("a\r\nset-cookie: b", b"a%0D%0Aset-cookie: b"),
        # Without a name there is no header.
        ("", None),
        ("  ", None),
    ],
)
def test_what_a_header_cannot_hold_is_percent_encoded(name: str, value: bytes | None) -> None:
    named = () if value is None else ((b"openai-organization", value),)
    assert organization_headers(name) == named


@given(names)
def test_every_name_can_be_sent_and_read_again(name: str) -> None:
    answer = h11.Response(status_code=200, headers=list(organization_headers(name)))

    values = [value.decode() for _, value in answer.headers]
    assert all(value.isascii() and value.isprintable() for value in values)
    assert list(map(unquote, values)) == [name.strip()] * bool(name.strip())


@table(
    "headers, authorization",
    [
        ([], None),
        ([(b"authorization", b"Bearer a")], b"Bearer a"),
        ([(b"api-key", b"a")], b"Bearer a"),
        ([(b"x-api-key", b" a ")], b"Bearer a"),
        ([(b"x-api-key", b"b"), (b"api-key", b"a")], b"Bearer a"),
        ([(b"api-key", b"b"), (b"authorization", b"bearer a")], b"bearer a"),
        ([(b"authorization", b"Basic dTpw"), (b"api-key", b"a")], b"Bearer a"),
        ([(b"authorization", b"Bearer "), (b"api-key", b"a")], b"Bearer a"),
        ([(b"authorization", b"Basic dTpw"), (b"api-key", b"")], b"Basic dTpw"),
        ([(b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")], b"Bearer a"),
    ],
)
def test_a_request_has_one_key_and_a_bearer_token_comes_first(
    headers: list[tuple[bytes, bytes]], authorization: bytes | None
) -> None:
    assert authorization_of(headers) == authorization
