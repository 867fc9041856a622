"""`vinery host`: a host is named by its name, or by its id where several have the name."""

import socket
from uuid import UUID

import pytest

from tests.accounts.commands.conftest import Vinery
from tests.cluster.hosts import NODE_HOST
from vinery_serving.cluster import joining
from vinery_serving.cluster.authority import host_fingerprint
from vinery_serving.models.host_rows import Host


def test_one_of_two_hosts_with_a_name_is_named_by_its_id(vinery_: Vinery) -> None:
    ids = [str(Host.objects.create(name="moon").pk) for _ in range(2)]
    refusal = vinery_("host", "drain", "moon").refusal
    assert refusal == "Several hosts are named moon. Write the id of one: vinery host list --json\n"
    assert vinery_("host", "drain", ids[1]).status == 0
    assert Host.objects.get(is_draining=True).pk == UUID(ids[1])


def test_a_drained_host_is_shown_by_the_command_that_is_named(vinery_: Vinery) -> None:
    Host.objects.create(name="moon")
    done = vinery_("host", "drain", "moon")
    text, _, command = done.out.strip().partition(" See: vinery ")
    assert text == "moon is being drained."
    assert "moon" in vinery_(*command.split()).out
    assert vinery_("host", "drain", "mars").refusal.startswith("There is no host mars. See: ")


def test_an_address_where_no_relay_answers_is_named(
    vinery_: Vinery, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(joining, "MAX_ANSWER_S", -joining.relayed.CONNECT_S)  # too late at once
    monkeypatch.setenv("VINERY_HOME", str(tmp_path_factory.mktemp("new")))
    token = joining.new_token(b"", host_fingerprint(NODE_HOST), 0)
    with socket.create_server(("127.0.0.3", 0)) as mute:
        port = mute.getsockname()[1]
        refusal = vinery_("host", "join", f"127.0.0.3:{port}", "--token", token).refusal
    assert refusal.startswith(f"No relay answers at 127.0.0.3:{port}: no answer. ")
    assert "VINERY_HOST_ADDRESS" in refusal
