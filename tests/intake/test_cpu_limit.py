"""A decoder that takes too long ends its process, whatever code it runs."""

import os
import signal

from vinery_serving.gateway.reading.media import _cpu_limit


def test_a_process_ends_in_a_block_that_takes_too_long_and_goes_on_after_another() -> None:
    pid = os.fork()
    if not pid:
        with _cpu_limit(0.05):
            while True:
                pass
    _, status = os.waitpid(pid, 0)

    assert os.WTERMSIG(status) == signal.SIGPROF

    with _cpu_limit(0.5):
        pass

    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
