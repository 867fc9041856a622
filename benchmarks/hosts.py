"""`python -m benchmarks.hosts`: the tokens that clients get from one, two and four hosts.

A host is a relay and a scripted engine with some slots: in each frame every running answer gets one
token, and no processor computes it. A web process reaches all hosts over their relays, and divides
the requests of a model between the model's replicas, of which three models have one, two and four.
They are asked in turns of one run, with half as many clients again as there are slots. Ends with 1
when an aim is missed.
"""

import argparse
import asyncio
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.gateway import Home, Server, started, used_s
from benchmarks.load import Connection, connect, read_stream, streamed
from benchmarks.machine import free_port, markdown, show
from benchmarks.measures import Stream
from benchmarks.platform_under_test import wait_until_it_answers
from tests.own_postgres import OwnPostgres, folder_of_programs
from vinery_platform.config import secret_files
from vinery_platform.config.home import Home as HomeFolder
from vinery_serving.cluster.authority import host_fingerprint
from vinery_serving.cluster.relay import note_hosts
from vinery_serving.transport.sockets import EngineAddress, engine_socket, settings_key

_LEAST: Final = {1: 1.0, 2: 1.9, 4: 3.7}  # times the tokens of one host, by the number of hosts
_SECRETS: Final = {
    f"VINERY_{name}": f"{name} of all hosts of this benchmark, which nobody else knows"
    for name in ("SECRET_KEY", "KEY_PEPPER_1")
}
_ROWS: Final = """
from vinery_serving.models.host_rows import Host, Placement
from vinery_serving.models.models import ServedModel
folder = ServedModel.objects.get().folder
hosts = [Host.objects.create(name=a, address=a, fingerprint=b) for a, b in {hosts}.items()]
for number in {numbers}:
    model = ServedModel.objects.create(name=f"on-{{number}}", folder=folder, num_replicas=number)
    for replica, host in enumerate(hosts[:number]):
        Placement.objects.create(model=model, replica=replica, host=host)
    print(model.pk, model.settings_digest)
"""


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    arguments = _arguments(argv)
    os.environ |= _SECRETS
    with TemporaryDirectory(prefix="vinery-bench-") as folder, ExitStack() as stack:
        if (programs := folder_of_programs()) is None:
            show("PostgreSQL is not installed here")
            return 2
        url = stack.enter_context(OwnPostgres(programs)).url
        own = {"DATABASE_URL": url, "VINERY_HOST_ADDRESS": f"127.0.0.1:{free_port()}"}
        home = Home(Path(folder, "web"), has_accounts=False, variables=own)
        home.prepare()
        _start_hosts(stack, home, arguments)
        server = stack.enter_context(home.web("on-1"))
        for number in _LEAST:
            wait_until_it_answers(server.endpoint, f"on-{number}")
        with asyncio.Runner() as runner:
            rounds = [
                {number: runner.run(_measure(server, number, arguments)) for number in _LEAST}
                for _ in range(arguments.rounds)
            ]
    return _show(rounds)


def _start_hosts(stack: ExitStack, web: Home, arguments: argparse.Namespace) -> None:
    """Start relays and engines, and write the rows of hosts, models and placements."""
    known = host_fingerprint(secret_files.host_key(HomeFolder(web.path)))
    secret = secret_files.socket_secret(HomeFolder(web.path)).hex()
    paces = {"SLOTS": str(arguments.slots), "FRAME_S": str(arguments.token_ms / 1e3)}
    keys = {f"127.0.0.1:{free_port()}": secret_files.new_secret() for _ in range(max(_LEAST))}
    hosts = {address: host_fingerprint(key) for address, key in keys.items()}
    printed = web.run_code(_ROWS.format(hosts=hosts, numbers=list(_LEAST)))
    models = dict(zip(_LEAST, map(str.split, printed.splitlines()), strict=True))
    for at, (address, key) in enumerate(keys.items()):
        home = HomeFolder(web.path.with_name(f"host-{at}"))
        secret_files.create(home, {secret_files.HOST_KEY_FILE: key})
        sockets = [
            engine_socket(home.run, EngineAddress(int(id_), settings_key(digest), at))
            for number, (id_, digest) in models.items()
            if at < number
        ]
        note_hosts(home.run, [known])
        engine = {"SOCKET_SECRET": secret, "FRAME_TOKENS": "1", **paces}
        relay = {"VINERY_HOME": str(home.path), "VINERY_HOST_ADDRESS": address}
        stack.enter_context(started(("benchmarks.scripted_engine", *sockets), engine))
        stack.enter_context(started(("vinery_platform.cli", "relay"), relay))


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hosts")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="with each number of hosts")
    parser.add_argument("--slots", type=int, default=8, help="answers that a host runs at once")
    parser.add_argument("--token-ms", type=float, default=50.0, help="of each running answer")
    return parser.parse_args(argv)


async def _measure(
    server: Server, num_hosts: int, arguments: argparse.Namespace
) -> tuple[float, float]:
    """Return tokens by second, and the part of a core that the web process has used."""
    num_clients = 3 * arguments.slots * num_hosts // 2
    connections = [await connect(server.endpoint) for _ in range(num_clients)]
    begin_s = time.perf_counter() + 1.0  # when all slots are taken
    end_s = begin_s + arguments.seconds
    asking = [asyncio.create_task(_ask(each, server, num_hosts, end_s)) for each in connections]
    await asyncio.sleep(begin_s - time.perf_counter())
    web_s = used_s(server)
    await asyncio.sleep(end_s - time.perf_counter())
    web_s = used_s(server) - web_s
    num_tokens = 0.0
    for stream in [each for streams in await asyncio.gather(*asking) for each in streams]:
        num_within = sum(begin_s <= each < end_s for each in stream.chunks_s)
        num_tokens += stream.num_tokens * num_within / len(stream.chunks_s)
    for connection in connections:
        connection.close()
    return num_tokens / arguments.seconds, web_s / arguments.seconds


async def _ask(
    connection: Connection, server: Server, num_hosts: int, end_s: float
) -> list[Stream]:
    """Stream chats of different lengths, one after the other."""
    streams = []
    while time.perf_counter() < end_s:
        messages = [{"role": "user", "content": f"Add 1 to {random.randrange(10**9)}."}]
        content = streamed(f"on-{num_hosts}", random.randrange(32, 96), messages=messages)
        await connection.ask(server.endpoint.post("/v1/chat/completions", content))
        streams.append(read_stream(connection.started_s, connection.arrivals))
    return streams


def _show(rounds: Sequence[Mapping[int, tuple[float, float]]]) -> int:
    is_met, rows = True, list[tuple[object, ...]]()
    for number, least in _LEAST.items():
        ratios = [each[number][0] / each[1][0] for each in rounds]
        tokens_per_s, cores = (median(each[number][at] for each in rounds) for at in (0, 1))
        spread = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        rows.append((number, f"{tokens_per_s:.0f}", spread, f"{cores:.2f} cores"))
        is_met = is_met and median(ratios) >= least
    print("\n".join(markdown(("hosts", "tokens/s", "to one host", "web process"), *rows)))
    show("the aims are met" if is_met else "an aim is missed")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
