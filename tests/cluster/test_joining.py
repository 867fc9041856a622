"""A host joins by a token that works once, and speaks to nobody else."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tests.cluster.hosts import AUTHORITY, KEY, NODE_HOST, WEB_HOST
from vinery_serving.cluster import joining
from vinery_serving.cluster.authority import Certificates, Role, host_fingerprint
from vinery_serving.cluster.joining import Admission, Refused
from vinery_serving.cluster.relay import Relay
from vinery_serving.transport.relayed import Join

NOW_S = 1_000_000.0
OWN, OTHER = host_fingerprint(NODE_HOST), host_fingerprint(WEB_HOST)


def token(fingerprint: str = OWN, authority: bytes = AUTHORITY) -> str:
    return joining.new_token(authority, fingerprint, NOW_S)


def test_only_tokens_of_the_installation_count_until_their_time_ends() -> None:
    made = token()
    assert joining.is_genuine(made, [b"a newer one", AUTHORITY], NOW_S + joining.VALID_S)
    assert not joining.is_genuine(made, [AUTHORITY], NOW_S + joining.VALID_S + 1)
    assert not joining.is_genuine(made, [b"another installation"], NOW_S)
    changed = made[:-4] + "AAAA", made.replace("vny", "vno")
    for wrong in ("", made[8:], made[:-1], *changed, "vnyhost_é"):
        assert not joining.is_genuine(wrong, [AUTHORITY], NOW_S), wrong
    assert token() != made


@asynccontextmanager
async def answering(
    run_dir: Path, answer: Callable[[Join], Admission]
) -> AsyncIterator[tuple[str, int]]:
    async def admit(wish: Join) -> bytes:
        return msgspec.msgpack.encode(answer(wish))

    certificates = Certificates([AUTHORITY], NODE_HOST, Role.NODE)
    listener = socket.create_server(("127.0.0.3", 0))
    address = listener.getsockname()
    running = asyncio.create_task(Relay(run_dir, KEY, certificates, admit).run(listener))
    yield address
    running.cancel()
    await asyncio.wait((running,))


async def test_a_host_gets_the_answer_of_the_host_that_made_its_token(tmp_path: Path) -> None:
    wishes = []

    def answer(wish: Join) -> Admission:
        wishes.append(wish)
        return Admission(secrets={"a": "b"}) if wish.name == "moon" else Admission("No.")

    async with answering(tmp_path, answer) as (host, port):
        found = await joining.ask(host, port, Join(token(), "moon", OTHER))
        assert found.secrets == {"a": "b"}
        with pytest.raises(Refused, match=r"No\."):
            await joining.ask(host, port, Join(token(), "mars", OTHER))
        assert [each.name for each in wishes] == ["moon", "mars"]
        # The token is of another host, so this one does not see it.
        with pytest.raises(Refused, match="Another host answers"):
            await joining.ask(host, port, Join(token(OTHER), "moon", OTHER))
        with pytest.raises(Refused, match="no token"):
            await joining.ask(host, port, Join("vnyhost_", "moon", OTHER))
        assert len(wishes) == 2
