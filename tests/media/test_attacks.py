"""No redirect and no name of an attack reaches an address that no rule allows. Its URLs and paths
are sent in the fields of requests: see `tests/gateway/recording/test_media.py`.

A server listens on one port of all addresses of this machine, and the connections that are tried
are recorded: where a rule allows the host, the address check alone stands between them.
"""

import pytest

from tests.outbound.attacks import ATTACKS, FORBIDDEN_IPV4, NAMES
from tests.outbound.recording import RecordedNetwork, listening_everywhere
from tests.outbound.servers import redirect
from vinery_accounts.outbound.urls import UrlRefused, read_url
from vinery_serving.core.media import UrlSource
from vinery_serving.media import rules
from vinery_serving.media.fetching import MediaFetcher, Wanted


def policy_that_allows(text: str, *others: rules.UrlRule) -> rules.MediaPolicy:
    """The most lenient policy: a rule names the very host and port of the attack, if there are
    any."""
    try:
        url = read_url(text)
        allowing = (*others, rules.UrlRule(1, url.host, ("http", "https"), (url.port,)))
    except UrlRefused:
        allowing = others
    return rules.MediaPolicy((rules.Level("platform", urls=allowing, folders=()),))


def rule_of(host: str, port: int) -> rules.UrlRule:
    return rules.UrlRule(2, host, ("http",), (port,), networks=("127.0.0.1/32",))


async def fetch(network: RecordedNetwork, url: str, policy: rules.MediaPolicy) -> None:
    wanted = Wanted(UrlSource(url), "messages[0].content[1]")
    await MediaFetcher(network.client()).fetch_all([wanted], policy, key=1, project=1)


async def test_no_redirect_to_an_attack_is_followed() -> None:
    network = RecordedNetwork(names={"start.example": [["127.0.0.1"]]})
    async with listening_everywhere() as server:
        start, port = f"http://start.example:{server.port}/", str(server.port)
        first = rule_of("start.example", server.port)
        attacks = (*ATTACKS, *(f"//{name}:{{port}}/" for name in NAMES))
        urls = [each.replace("{port}", port) for each in attacks]
        sent = [url for url in urls if not set(url) & set("\r\n\0") and url.isprintable()]
        for url in sent:
            server.answer = redirect(url.encode())
            policy = policy_that_allows(f"http:{url}" if url.startswith("//") else url, first)
            with pytest.raises((rules.MediaDenied, rules.MediaNotFetched)):
                await fetch(network, start, policy)
        assert len(sent) >= 900
        # Only first URLs, which the rule allows, and redirects back to them are connected.
        assert set(network.connected) == {"127.0.0.1"}
        assert {headers["host"] for _, headers in server.requests} == {f"start.example:{port}"}


async def test_a_name_that_changes_its_answer_reaches_only_what_was_checked() -> None:
    """A public address at the check, a forbidden one for the redirect: it is checked again."""
    for forbidden in map(str, FORBIDDEN_IPV4[1:]):
        network = RecordedNetwork(names={"a.example": [["127.0.0.1"], [forbidden]]})
        async with listening_everywhere() as server:
            server.answer = redirect("/latest/meta-data/")
            policy = rules.MediaPolicy(
                (rules.Level("platform", urls=(rule_of("a.example", server.port),), folders=()),)
            )
            with pytest.raises(rules.MediaDenied) as caught:
                await fetch(network, f"http://a.example:{server.port}/", policy)
        assert caught.value.denial.reason is rules.DenialReason.ADDRESS
        assert network.connected == ["127.0.0.1"]
