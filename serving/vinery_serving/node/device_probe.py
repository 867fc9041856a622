"""Finds the devices on which OpenVINO can run models.

The program, `python -m`, prints the devices as JSON. `find` starts a process for the program,
because OpenVINO is large, and a driver may crash or hang.
"""

import asyncio
import os
import signal
import sys
import tempfile
from subprocess import PIPE
from typing import Any, Final

import msgspec

from vinery_serving.models.devices import Device
from vinery_serving.processes import parent
from vinery_serving.processes.child import ChildProcess, environment_with

# A driver that takes longer hangs.
TIMEOUT_S: Final = 60
_END_WITHIN_S: Final = 1
# Engines that start at the same time go first.
_NICENESS: Final = 10
_MEMORY: Final = ("GPU_DEVICE_TOTAL_MEM_SIZE", "NPU_DEVICE_TOTAL_MEM_SIZE")
_DRIVER: Final = ("GPU_DRIVER_VERSION", "NPU_DRIVER_VERSION")


class ProbeFailed(Exception):
    """The devices could not be found. The message gives the reason."""


async def find() -> list[Device]:
    """Return the devices of this machine, in OpenVINO's order. Raises `ProbeFailed`."""
    with tempfile.TemporaryFile() as errors:
        try:
            process = ChildProcess(
                (sys.executable, "-m", __name__),
                "device probe",
                environment=environment_with(),
                stdout=PIPE,
                stderr=errors.fileno(),
                leads_group=False,
            )
        except OSError as error:
            raise ProbeFailed(f"The process could not start: {error.strerror}.") from None
        output = await _read_output(process)
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    try:
        return msgspec.json.decode(output, type=list[Device])
    except msgspec.MsgspecError:
        last = text.strip().rpartition("\n")[2]
        raise ProbeFailed(f"OpenVINO could not list the devices: {last}") from None


async def _read_output(process: ChildProcess) -> bytes:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            output = await (await process.output()).read()
            await process.wait()
    except TimeoutError:
        raise ProbeFailed(f"OpenVINO did not list the devices within {TIMEOUT_S} s.") from None
    finally:
        process.kill()
        await process.ends_within(_END_WITHIN_S)  # one that the kernel holds is left to itself
        process.close()
    return output


def _list_devices() -> list[Device]:
    import openvino

    core = openvino.Core()
    return [_device(core, name) for name in core.available_devices]


def _device(core: Any, name: str) -> Device:
    access = core.get_property(name, "SUPPORTED_PROPERTIES")
    known = {str(each) for each in access}

    def value_of(*properties: str) -> Any:
        supported = next((each for each in properties if each in known), None)
        return None if supported is None else core.get_property(name, supported)

    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    memory = machine_bytes if name == "CPU" else value_of(*_MEMORY)
    driver = value_of(*_DRIVER)
    return Device(
        name,
        str(value_of("FULL_DEVICE_NAME") or name).strip(),
        memory_bytes=None if memory is None else int(memory),
        driver=None if driver is None else str(driver),
        properties=tuple(str(each) for each in access if access[each] != "RO"),
    )


if __name__ == "__main__":
    os.nice(_NICENESS)
    parent.signal_at_its_end(signal.SIGKILL)
    reports = os.dup(1)
    os.dup2(2, 1)  # libraries may print to standard output
    os.write(reports, msgspec.json.encode(_list_devices()))
    # Without destructors: those of a driver may hang.
    os._exit(0)
