"""The outputs of a log neither hold up a process nor lose lines without a notice."""

import os
import threading

from vinery.process.outputs import Output, write_all


def notice(num_lost: int) -> bytes:
    return b"%d lost\n" % num_lost


def test_lines_are_written_in_order() -> None:
    written = bytearray()

    def write(data: bytes) -> bool:
        written.extend(data)
        return True

    output = Output(write, notice)
    for number in range(1000):
        output.put(b"%d\n" % number, is_urgent=number % 7 == 0)
    output.flush(30.0)

    assert written.split() == [b"%d" % number for number in range(1000)]


def test_a_reader_that_stands_still_costs_lines_and_holds_up_no_one() -> None:
    reader, writer = os.pipe()
    output = Output(lambda data: write_all(writer, data), notice)
    line = b"x" * 1023 + b"\n"

    for _ in range(5000):
        output.put(line)

    received = bytearray()
    while b"lost\n" not in received:
        received += os.read(reader, 65536)
    num_lost = int(received.split()[-2])
    assert num_lost > 0
    assert received.count(line) + num_lost == 5000
    os.close(reader)
    assert not write_all(writer, b"x\n"), "a closed reader is no error"


def test_lines_that_a_disk_does_not_take_are_reported_when_it_does() -> None:
    is_full = threading.Event()
    is_full.set()
    written = bytearray()

    def write(data: bytes) -> bool:
        if is_full.is_set():
            return False
        written.extend(data)
        return True

    output = Output(write, notice)
    output.put(b"a\nb\n")
    output.put(b"c\n")
    output.flush(30.0)
    is_full.clear()
    output.put(b"d\n")
    output.flush(30.0)

    assert bytes(written) == b"d\n2 lost\n"
