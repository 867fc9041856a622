"""A filter of system calls for this process, as the kernel's seccomp takes it: a small program.

The filter holds for all threads and descendants, and no process can remove its filter. Calls that
act on other processes, on the machine or on keys are always refused. Others are refused unless a
process needs them, see `Act`. Calls that are newer than this file, or of another architecture, are
unknown to the process.
"""

import ctypes
import errno
import os
import re
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cache
from typing import Final


class Act(StrEnum):
    """What a filter refuses to a process that does not need it."""

    CONNECT = "connect"  # sockets of the named families
    ACCEPT = "accept"  # connections, of a socket that is bound already
    FORK = "fork"
    EXECUTE = "execute"  # programs
    SIGNAL = "signal"  # other processes
    OWN = "own"  # change modes, owners, times and attributes of files
    COPY = "copy"  # files with these, which then stay as they are without an error
    OUTLIVE = "outlive"  # the parent


# The numbers of a call on x86-64 and on AArch64, of `asm/unistd.h`; a dash: there is none.
_REFUSED: Final = {
    Act.CONNECT: "socket 41 198, connect 42 203, bind 49 200",
    Act.ACCEPT: "listen 50 201, accept 43 202, accept4 288 242",
    Act.FORK: "fork 57 -, vfork 58 -",
    Act.EXECUTE: "execve 59 221, execveat 322 281",
    Act.SIGNAL: "tkill 200 130, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, "
    "pidfd_open 434 434, pidfd_send_signal 424 424",
    Act.OWN: "chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92 -, "
    "lchown 94 -, fchown 93 55, fchownat 260 54, utime 132 -, utimes 235 -, futimesat 261 -, "
    "utimensat 280 88, setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, "
    "lremovexattr 198 15, fremovexattr 199 16",
}
_ALWAYS_REFUSED: Final = """
ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, process_madvise 440 440,
process_mrelease 448 448, kcmp 312 272, pidfd_getfd 438 438, migrate_pages 256 238,
move_pages 279 239, setpriority 141 140, ioprio_set 251 30, sched_setattr 314 274,
sched_setparam 142 118, sched_setscheduler 144 119, msgget 68 186, semget 64 190, shmget 29 194,
mq_open 240 180, add_key 248 217, request_key 249 218, keyctl 250 219, io_uring_setup 425 425,
io_uring_enter 426 426, io_uring_register 427 427, bpf 321 280, perf_event_open 298 241,
userfaultfd 323 282, unshare 272 97, setns 308 268, mount 165 40, umount2 166 39,
pivot_root 155 41, chroot 161 51, open_tree 428 428, move_mount 429 429, fsopen 430 430,
fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442, init_module 175 105,
finit_module 313 273, delete_module 176 106, kexec_load 246 104, kexec_file_load 320 294,
reboot 169 142, swapon 167 224, swapoff 168 225, acct 163 89, quotactl 179 60,
quotactl_fd 443 443, settimeofday 164 170, clock_settime 227 112, clock_adjtime 305 266,
adjtimex 159 171, sethostname 170 161, setdomainname 171 162, iopl 172 -, ioperm 173 -,
modify_ldt 154 -, personality 135 92, name_to_handle_at 303 264, open_by_handle_at 304 265,
fanotify_init 300 262, fanotify_mark 301 263, syslog 103 116, vhangup 153 58, nfsservctl 180 42,
setuid 105 146, setgid 106 144, setreuid 113 145, setregid 114 143, setresuid 117 147,
setresgid 119 149, setfsuid 122 151, setfsgid 123 152, setgroups 116 159
"""
# Calls whose arguments decide.
_DECIDED: Final = """
socket 41 198, clone 56 220, clone3 435 435, kill 62 129, tgkill 234 131,
prctl 157 167, prlimit64 302 261, sched_setaffinity 203 122
"""
_NEWEST: Final = 462  # mseal
# For each machine the column of its numbers, its `AUDIT_ARCH_*`, and the number of `seccomp`.
_MACHINES: Final = {"x86_64": (0, 0xC000003E, 317), "aarch64": (1, 0xC00000B7, 277)}
_CLONE_THREAD: Final = 0x10000
# PR_SET_PDEATHSIG; PR_SET_MM and PR_SET_PTRACER.
_OUTLIVING: Final = 1
_NEVER_SET: Final = (35, 0x59616D61)

# linux/filter.h and linux/seccomp.h
_LOAD: Final = 0x20
_IS: Final = 0x15
_IS_LEAST: Final = 0x35
_HAS_BITS: Final = 0x45
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
_REFUSE: Final = 0x00050000 | errno.EPERM
_DO_NOTHING: Final = 0x00050000
_UNKNOWN: Final = 0x00050000 | errno.ENOSYS
_NUMBER_AT, _MACHINE_AT, _ARGUMENT_AT = 0, 4, 16
_SET_MODE_FILTER: Final = 1
_ALL_THREADS: Final = 1


# The code, how many instructions are left out if true and if false, and the value.
_Instruction = tuple[int, int, int, int]


def _answered(numbers: Iterable[int], answer: int) -> Iterator[_Instruction]:
    for number in numbers:
        yield _IS, 0, 1, number
        yield _RETURN, 0, 0, answer


def _decided(
    number: int, values: Sequence[int], *, test: int = _IS, refuses: bool = False
) -> Iterator[_Instruction]:
    """Allow the call if the first argument, of 32 bits, is one of the values; `refuses`: if not."""
    yield _IS, 0, len(values) + 3, number
    yield _LOAD, 0, 0, _ARGUMENT_AT
    for index, value in enumerate(values):
        yield test, len(values) - index, 0, value
    yield _RETURN, 0, 0, _ALLOW if refuses else _REFUSE
    yield _RETURN, 0, 0, _REFUSE if refuses else _ALLOW


@cache
def _numbers(table: str, column: int) -> dict[str, int]:
    rows = re.findall(r"(\w+) (\d+|-) (\d+|-)", table)
    return {name: int(each[column]) for name, *each in rows if each[column] != "-"}


def _program(
    acts: frozenset[Act], families: Sequence[int], pid: int, machine: str
) -> Iterator[_Instruction]:
    column, architecture, _ = _MACHINES[machine]
    at = _numbers(_DECIDED, column)
    yield _LOAD, 0, 0, _MACHINE_AT
    yield _IS, 1, 0, architecture
    yield _RETURN, 0, 0, _KILL
    yield _LOAD, 0, 0, _NUMBER_AT
    yield _IS_LEAST, 0, 1, _NEWEST + 1
    yield _RETURN, 0, 0, _UNKNOWN
    yield from _answered(_numbers(_ALWAYS_REFUSED, column).values(), _REFUSE)
    for act in _REFUSED.keys() - acts:
        answer = _DO_NOTHING if act is Act.OWN and Act.COPY in acts else _REFUSE
        yield from _answered(_numbers(_REFUSED[act], column).values(), answer)
    if Act.CONNECT in acts:
        yield from _decided(at["socket"], families)
    if Act.FORK not in acts:
        yield from _answered([at["clone3"]], _UNKNOWN)  # libraries then use `clone`
        yield from _decided(at["clone"], [_CLONE_THREAD], test=_HAS_BITS)
    if Act.SIGNAL not in acts:
        yield from _decided(at["kill"], [pid])
        yield from _decided(at["tgkill"], [pid])
    forbidden = (*_NEVER_SET, *(() if Act.OUTLIVE in acts else (_OUTLIVING,)))
    yield from _decided(at["prctl"], forbidden, refuses=True)
    yield from _decided(at["prlimit64"], [0])
    yield from _decided(at["sched_setaffinity"], [0])
    yield _RETURN, 0, 0, _ALLOW


def filter_calls(acts: frozenset[Act], families: Sequence[int], pid: int) -> bool:
    """Refuse calls to this process from now on. Returns False if this system cannot."""
    machine = os.uname().machine
    if sys.platform != "linux" or machine not in _MACHINES:
        return False
    instructions = _program(acts, families, pid, machine)
    program = b"".join(struct.pack("=HBBI", *each) for each in instructions)
    code = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    call = ctypes.CDLL(None, use_errno=True).syscall
    number = _MACHINES[machine][2]
    return not call(number, _SET_MODE_FILTER, _ALL_THREADS, described)
