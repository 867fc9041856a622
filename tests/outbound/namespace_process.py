"""Tries all attacks in a network of its own, where every address leads to one listening server.

Linux gives such a network to root, and to users where the administrator allows it. Elsewhere the
server listens on the addresses of this machine. Prints what happened as JSON.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress

from tests.outbound.attacks import ATTACKS, FORBIDDEN_IPV4, FORBIDDEN_IPV6, NAMES
from tests.outbound.recording import RecordedNetwork, listening_everywhere
from tests.outbound.servers import Server
from vinery_serving.core.errors import InvalidRequest
from vinery_serving.core.media import UrlSource
from vinery_serving.media.fetching import MediaFetcher, Wanted
from vinery_serving.media.rules import Level, MediaPolicy, UrlRule

_CONNECT_S = 2.0
_ARRIVAL_S = 30.0


def enter_a_network_of_our_own() -> None:
    """Start this program again in it, unless it runs there or cannot."""
    unshare = shutil.which("unshare")
    ip = shutil.which("ip", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if "own" in sys.argv or unshare is None or ip is None:
        return
    for command in ([unshare, "-n"], [unshare, "-rn"]):
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            os.execv(unshare, [*command, sys.executable, "-m", __spec__.name, "own", ip])


def make_every_address_ours(ip: str) -> None:
    for words in (
        "link set lo up",
        "route add local 0.0.0.0/0 dev lo",
        "-6 route add local ::/0 dev lo",
    ):
        subprocess.run([ip, *words.split()], capture_output=True, check=False)


async def reachable(port: int) -> list[str]:
    found = []
    for address in (*map(str, FORBIDDEN_IPV4), *FORBIDDEN_IPV6):
        with suppress(OSError):
            async with asyncio.timeout(_CONNECT_S):
                _, writer = await asyncio.open_connection(address, port)
            writer.close()
            found.append(address)
    return found


async def num_arrived(server: Server) -> int:
    """The number of all connections up to now: those of a listener are accepted in order, so a
    request that comes last to each of them is waited for, and not counted."""
    num_ours = 0
    async with asyncio.timeout(_ARRIVAL_S):
        for address in ("127.0.0.1", "::1"):
            path = f"/{address}/{server.num_connections}"
            with suppress(OSError):
                _, writer = await asyncio.open_connection(address, server.port)
                writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
                while path not in (each for each, _ in server.requests):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                writer.close()
                num_ours += 1
    server.num_connections -= num_ours
    return server.num_connections


async def is_refused(fetcher: MediaFetcher, url: str, policy: MediaPolicy) -> bool:
    wanted = Wanted(UrlSource(url), "messages[0].content[1]")
    try:
        await fetcher.fetch_all([wanted], policy, key=1, project=1)
    except InvalidRequest:
        return True
    return False


async def main() -> None:
    network = RecordedNetwork()
    fetcher = MediaFetcher(network.client())
    async with listening_everywhere() as server:
        found = await reachable(server.port)
        num_before = await num_arrived(server)
        rules = tuple(
            UrlRule(1, host, ("http", "https"), (server.port, 80, 443))
            for host in (*map(str, FORBIDDEN_IPV4), *FORBIDDEN_IPV6, *NAMES, "localhost")
        )
        policy = MediaPolicy((Level("platform", urls=rules, folders=()),))
        urls = [each.replace("{port}", str(server.port)) for each in ATTACKS]
        urls += [f"http://{name}:{server.port}/" for name in NAMES]
        num_refused = sum([await is_refused(fetcher, url, policy) for url in urls])
        num_after = await num_arrived(server)
        result = {"is_own": "own" in sys.argv, "reachable": found, "num_noticed": num_before}
        result |= {"num_attacks": len(urls), "num_refused": num_refused}
        result |= {"num_connections": num_after - num_before, "tried": network.connected}
    print(json.dumps(result))  # noqa: T201


if __name__ == "__main__":
    enter_a_network_of_our_own()
    if "own" in sys.argv:
        make_every_address_ours(sys.argv[-1])
    asyncio.run(main())
