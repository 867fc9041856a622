"""Fields without effect are named in a header that clients cannot break, and counted by few
names."""

from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from tests.tables import table
from vinery_serving.core.errors import UnknownParameter, UnsupportedParameter
from vinery_serving.core.request import Unused
from vinery_serving.gateway.endpoints.edge import OWN_HEADERS
from vinery_serving.gateway.endpoints.notices import ignored, report_unused
from vinery_serving.gateway.state.traffic import Traffic


def reported(unused: Unused, *others: str, betas: bytes = b"") -> tuple[list[Any], dict[str, int]]:
    """The headers of the answer, and what was counted."""
    sent = [(b"anthropic-beta", betas)] if betas else []
    scope: dict[str, Any] = {OWN_HEADERS: [], "headers": sent}
    traffic = Traffic()
    report_unused(unused, scope, traffic, *others)
    return scope[OWN_HEADERS], dict(traffic.ignored)


UNFIT = ["a b", "a,b", "ü", "a\r\nx: y", "", "a" * 65, 'a"']
FIELDS = tuple(f"field{number}" for number in range(32))
ALL = Unused(("chat_id",), 1, ("keep_alive",), ("store", "tools.mcp"))


@table(
    "unused, others, value",
    [
        # Known fields that took no effect come before unknown fields.
        (ALL, ["model"], b"model, store, tools.mcp, keep_alive, chat_id"),
        # A name that is unfit for a header is only counted.
        *((Unused(("good", name), 2), [], b"good, +1 more") for name in UNFIT),
        # The header has at most sixteen names.
        (Unused(FIELDS, 1000), [], ", ".join([*FIELDS[:16], "+984 more"]).encode()),
    ],
)
def test_what_took_no_effect_is_a_header(unused: Unused, others: list[str], value: bytes) -> None:
    assert reported(unused, *others)[0] == [(b"x-vinery-ignored", value)]


def test_the_betas_of_a_client_are_named_with_the_fields_of_its_body() -> None:
    headers, counted = reported(Unused(("chat_id",), 1), betas=b"a-2025,b-2025")

    assert headers == [(b"x-vinery-ignored", b"anthropic-beta, chat_id")]
    assert counted == {"anthropic-beta": 1, "other": 1}


@given(st.lists(st.text(max_size=200), max_size=40))
def test_any_names_are_a_short_header(names: list[str]) -> None:
    value = ignored(names, len(names))

    h11.Response(status_code=200, headers=[("x-vinery-ignored", value)])
    assert value.isascii()
    assert len(value) < 2000


def test_known_names_are_their_own_labels_and_those_of_clients_are_one() -> None:
    known = Unused(("x",), 1, ("cache_control",), ("store", "tools.web_search", "tools.mine"))

    assert reported(known)[1] == {"cache_control": 1, "store": 1, "tools.web_search": 1, "other": 1}
    assert reported(Unused(("chat_id", "features"), 2))[1] == {"other": 1}
    assert reported(Unused()) == ([], {})


def test_a_strict_server_refuses_unknown_fields_or_what_only_openai_hosts(
    settings: Settings,
) -> None:
    unknown, hosted = Unused(("chat_id",), 1), Unused(hosted=("tools.web_search",))
    settings.VINERY_UNKNOWN_FIELDS = "refuse"
    with pytest.raises(UnknownParameter) as refused:
        reported(unknown)
    assert (refused.value.param, refused.value.code) == ("chat_id", "unknown_parameter")
    assert reported(hosted)[0]

    settings.VINERY_UNKNOWN_FIELDS, settings.VINERY_HOSTED_FEATURES = "ignore", "refuse"
    with pytest.raises(UnsupportedParameter) as unsupported:
        reported(hosted)
    assert unsupported.value.param == "tools.web_search"
    assert reported(unknown)[0]
