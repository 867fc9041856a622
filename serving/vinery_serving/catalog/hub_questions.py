"""Asks hubs for pages and the management API: a few questions at a time, each with a deadline.

A question occupies a thread. One that is not answered in time goes on until its connection ends,
and counts as long: a slow hub cannot collect threads.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from vinery_serving.hub.errors import HubUnavailable

ResultT = TypeVar("ResultT")

MAX_QUESTIONS: Final = 4
WITHIN_S: Final = 25.0
_RUNNING: Final = threading.BoundedSemaphore(MAX_QUESTIONS)


def ask(question: Callable[[], ResultT], within_s: float = WITHIN_S) -> ResultT:
    """Return the answer. Raises what the question raises, and `HubUnavailable` after the deadline
    or while too many others run."""
    if not _RUNNING.acquire(blocking=False):
        raise HubUnavailable("Too many questions to hubs are running. Try again in a moment.")
    answer: Future[ResultT] = Future()
    threading.Thread(target=_answer, args=(question, answer), daemon=True).start()
    try:
        return answer.result(timeout=within_s)
    except TimeoutError:
        raise HubUnavailable(
            f"The hub did not answer within {within_s:g} s. Check the network, HTTPS_PROXY and "
            "HF_ENDPOINT."
        ) from None


def _answer(question: Callable[[], ResultT], answer: "Future[ResultT]") -> None:
    try:
        answer.set_result(question())
    except Exception as error:
        answer.set_exception(error)
    finally:
        _RUNNING.release()
