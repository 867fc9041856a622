"""A worker that a file or template has taken over can do nothing to others, and each part of the
confinement does what it is for: the kernel is asked, with that part alone and without it."""

import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import pytest

from tests.gateway.workers import jobs_for_tests as jobs
from tests.gateway.workers.attacks import Targets, a_neighbour, outcomes
from tests.gateway.workers.test_pool import call, pool_with
from tests.tables import table
from vinery_serving.engine.config import EngineConfig
from vinery_serving.processes.calls import Act, _program
from vinery_serving.processes.confine import Part, available

# A process traces no other of another Landlock domain, whatever the rules are, nor one with more
# capabilities.
_NOT_TRACED = tuple(
    {each} for each in (Part.FILES, Part.TCP, Part.SOCKETS, Part.SIGNALS, Part.CAPABILITIES)
)
_CALLS = {Part.CALLS}
_FILES = {Part.FILES}
# For each attack the sets of parts of which each alone stops the attack.
STOPPED_BY: dict[str, tuple[set[Part], ...]] = {
    "read_the_secret": (_FILES,),
    "list_the_home": (_FILES,),
    "read_passwords_of_the_machine": (_FILES,),
    "write_a_file": (_FILES,),
    "remove_a_file": (_FILES,),
    "open_a_secret_to_all": (_CALLS,),
    "read_memory": _NOT_TRACED,
    "read_the_environment": (_FILES, {Part.TCP, Part.CAPABILITIES}),
    "trace": (_CALLS, *_NOT_TRACED),
    "copy_memory": (_CALLS, *_NOT_TRACED),
    "signal_the_web_process": (_CALLS, {Part.SIGNALS}),
    "take_a_descriptor": (_CALLS,),
    "connect_to_a_port": (_CALLS, {Part.TCP}),
    "send_a_datagram": (_CALLS,),
    "connect_to_an_engine": (_CALLS,),
    "connect_without_a_path": (_CALLS, {Part.SOCKETS}),
    "listen_to_clients": (_CALLS, _FILES),
    "fork": (_CALLS,),
    "run_a_program": (_CALLS, _FILES),
    "raise_a_limit": ({Part.LIMITS, Part.CAPABILITIES},),
    "use_an_inherited_descriptor": ({Part.DESCRIPTORS},),
    "make_namespaces": (_CALLS,),
    "use_a_ring_of_calls": (_CALLS,),
    "outlive_the_parent": (_CALLS,),
    "leave_a_core": ({Part.MEMORY},),
    "gain_privileges": ({Part.PRIVILEGES},),
    "use_capabilities": (_FILES, {Part.CAPABILITIES}),
}
ATTACKS = sorted(STOPPED_BY)


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Targets]:
    with a_neighbour(tmp_path_factory.mktemp("home")) as targets:
        yield targets


@pytest.fixture(scope="module")
def parts() -> frozenset[Part]:
    found = available()
    if not found >= {Part.CALLS, Part.FILES}:
        pytest.skip("this kernel has neither seccomp nor Landlock")
    return found


async def test_a_worker_that_was_taken_over_reaches_nothing_of_others(
    targets: Targets, parts: frozenset[Part]
) -> None:
    async with pool_with() as pool:
        done = [each for each in ATTACKS if await call(pool, jobs.attack, each, targets)]
    assert done == []


async def test_a_process_that_reads_one_model_reads_no_other_folder(
    targets: Targets, parts: frozenset[Part], tmp_path: Path
) -> None:
    async with pool_with() as pool:
        pool.allow([Path(targets.home)])
        assert await call(pool, jobs.attack, "read_the_secret", targets)
        async with pool.worker(1, "model", [tmp_path]) as worker:
            assert not await worker.call(jobs.attack, "read_the_secret", targets)
        assert await call(pool, jobs.attack, "read_the_secret", targets)


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel refuses some attacks to others than root")
def test_each_part_stops_what_it_is_for_and_without_it_the_attack_succeeds(
    targets: Targets, parts: frozenset[Part]
) -> None:
    check_parts(targets, parts, STOPPED_BY)


def check_parts(
    targets: Targets,
    parts: frozenset[Part],
    stopped_by: Mapping[str, Sequence[set[Part]]],
    engine: EngineConfig | None = None,
) -> None:
    alone = [(name, each) for name, sets in stopped_by.items() for each in sets if each <= parts]
    without = [(name, parts - set(chain(*sets))) for name, sets in stopped_by.items()]

    succeeded = outcomes(targets, [*alone, *without], engine)

    wrong = [row for row, done in zip(alone, succeeded, strict=False) if done]
    assert wrong == [], "this part alone does not stop the attack"
    harmless = [row for row, done in zip(without, succeeded[len(alone) :], strict=True) if not done]
    assert harmless == [], "something else stops the attack"


_READER = (
    "import sys; from pathlib import Path; from vinery_serving.processes.confine import *; "
    "file = Path(sys.argv[1], sys.argv[2]); confine(Needs(reads=[Path(sys.argv[1])])); "
    "print(file.read_text(), end='')"
)


@pytest.mark.parametrize("name", ["config.json", "1_Pooling/config.json"])
def test_a_folder_of_a_hubs_cache_is_read_through_its_links(
    tmp_path: Path, parts: frozenset[Part], name: str
) -> None:
    blobs, folder = tmp_path / "blobs", tmp_path / "snapshots"
    (folder / name).parent.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "a").write_text("{}")
    (blobs / "b").write_text("of another model")
    (folder / name).symlink_to(os.path.relpath(blobs / "a", (folder / name).parent))

    read, other = (
        subprocess.run((sys.executable, "-c", _READER, folder, each), capture_output=True)
        for each in (name, "../blobs/b")
    )
    assert read.stdout == b"{}", read.stderr.decode()
    assert b"PermissionError" in other.stderr


_ALLOWED, _REFUSED, _UNKNOWN, _KILLED = 0x7FFF0000, 0x50001, 0x50026, 0x80000000
_NOTHING = 0x50000
_X86, _ARM = ("x86_64", 0xC000003E), ("aarch64", 0xC00000B7)
_INET, _PID = 2, 77


@table(
    "machine, acts, number, argument, answer",
    [
        (_X86, {}, 0, 0, _ALLOWED),  # read
        (_ARM, {}, 63, 0, _ALLOWED),
        (_X86, {}, 101, 0, _REFUSED),  # ptrace
        (_ARM, {}, 117, 0, _REFUSED),
        (_ARM, {}, 101, 0, _ALLOWED),  # nanosleep
        (_X86, {}, 41, _INET, _REFUSED),  # socket
        (_ARM, {Act.CONNECT}, 198, _INET, _ALLOWED),
        (_ARM, {Act.CONNECT}, 198, 1, _REFUSED),
        (_X86, {}, 56, 0x10F00, _ALLOWED),  # clone of a thread, and of a process
        (_ARM, {}, 220, 0x11, _REFUSED),
        (_ARM, {Act.FORK}, 220, 0x11, _ALLOWED),
        (_X86, {}, 50, 0, _REFUSED),  # listen
        (_X86, {Act.ACCEPT}, 50, 0, _ALLOWED),
        (_X86, {Act.ACCEPT}, 49, 0, _REFUSED),  # bind
        (_ARM, {}, 53, 0, _REFUSED),  # fchmodat
        (_ARM, {Act.COPY}, 53, 0, _NOTHING),
        (_X86, {}, 435, 0, _UNKNOWN),  # clone3, whose flags no filter sees
        (_X86, {Act.FORK}, 435, 0, _ALLOWED),
        (_ARM, {}, 129, _PID, _ALLOWED),  # kill
        (_ARM, {}, 129, 1, _REFUSED),
        (_ARM, {Act.SIGNAL}, 129, 1, _ALLOWED),
        (_X86, {}, 157, 1, _REFUSED),  # prctl
        (_X86, {}, 157, 15, _ALLOWED),
        (_X86, {Act.OUTLIVE}, 157, 1, _ALLOWED),
        (_X86, {}, 302, 5, _REFUSED),  # prlimit64
        (_ARM, {}, 500, 0, _UNKNOWN),
        (_X86, {}, 0x40000000, 0, _UNKNOWN),  # of the x32 machine
    ],
)
def test_a_filter_decides_by_call_and_argument(
    machine: tuple[str, int], acts: set[Act], number: int, argument: int, answer: int
) -> None:
    name, architecture = machine
    program = list(_program(frozenset(acts), (_INET,), _PID, name))
    assert _answer(program, struct.pack("=iIQQ", number, architecture, 0, argument)) == answer
    assert _answer(program, struct.pack("=iIQQ", number, 0x40000003, 0, 0)) == _KILLED


def _answer(program: list[tuple[int, int, int, int]], data: bytes) -> int:
    """Run a filter as the kernel does: it has these instructions only, which jump forward."""
    value, at = 0, 0
    while True:
        code, if_true, if_false, operand = program[at]
        tests = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}
        if code == 0x06:
            return int(operand)
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, operand)
        else:
            at += if_true if tests[code] else if_false
        at += 1
