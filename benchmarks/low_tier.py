"""`python -m benchmarks.low_tier`: first tokens of chats beside background responses.

One key streams short chats one after the other, alone and beside background responses of another
key, in turns. First tokens may be at most a tenth later, and the background work must go on
meanwhile: ends with 1 when either is missed.
"""

import argparse
import random
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Final, NamedTuple

import httpx

from benchmarks.load import Endpoint, ServedModel
from benchmarks.machine import REPOSITORY, show
from benchmarks.measures import Stream
from benchmarks.platform_under_test import own_platform, wait_until_it_answers
from benchmarks.prompts import PromptSource, counting, rambling
from benchmarks.settings import TINY_CHAT

_MAX_RATIO: Final = 1.1
_PAUSE_S: Final = 0.1  # at most, before a chat: the background work runs meanwhile
_BACKGROUND: Final[dict[str, Any]] = {
    "model": TINY_CHAT, "input": "Count to 60.", "background": True, "ignore_eos": True,
    "max_output_tokens": 1500,
}  # fmt: skip


class _Phase(NamedTuple):
    first_token_s: float  # median
    other_tokens_per_s: float


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.low_tier")
    parser.add_argument("--background", type=int, default=500, help="responses of the other key")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chats", type=int, default=200)
    parser.add_argument("--words", type=int, help="of each chat; else a short question")
    arguments = parser.parse_args(argv)
    write = rambling(arguments.words) if arguments.words else counting
    prompts, rounds = PromptSource(REPOSITORY / "models" / TINY_CHAT, write), []
    with own_platform() as platform, ServedModel(platform.endpoint, TINY_CHAT) as model:
        wait_until_it_answers(platform.endpoint, TINY_CHAT)
        key = platform.run("key", "create", "--name", "background").strip()
        for number in range(1 + arguments.rounds):
            alone = _phase(model, platform.endpoint, prompts, arguments.chats)
            with _background(platform.endpoint.base_url, key, arguments.background):
                beside = _phase(model, platform.endpoint, prompts, arguments.chats)
            if number:  # the first is to warm up
                rounds.append((alone, beside))
    ratio = median(beside.first_token_s / alone.first_token_s for alone, beside in rounds)
    tokens_per_s = median(beside.other_tokens_per_s for _, beside in rounds)
    first_ms = [median(each[at].first_token_s for each in rounds) * 1e3 for at in (0, 1)]
    show("first token alone: {:.2f} ms, beside: {:.2f} ms".format(*first_ms))
    show(f"ratio: {ratio:.3f}, background tokens/s meanwhile: {tokens_per_s:.0f}")
    return 0 if ratio <= _MAX_RATIO and tokens_per_s > 0 else 1


def _phase(model: ServedModel, endpoint: Endpoint, prompts: PromptSource, num: int) -> _Phase:
    began_s, before = time.monotonic(), _num_generated(endpoint)
    streams: list[Stream] = []
    for prompt in prompts.take(num):
        time.sleep(random.uniform(0, _PAUSE_S))
        streams += model.run([prompt], max_tokens=8).streams
    num_others = _num_generated(endpoint) - before - sum(each.num_tokens for each in streams)
    first_s = median(each.first_token_s for each in streams)
    return _Phase(first_s, num_others / (time.monotonic() - began_s))


def _num_generated(endpoint: Endpoint) -> float:
    metrics = httpx.get(f"{endpoint.base_url}/metrics").text
    return sum(map(float, re.findall(r"^vllm:generation_tokens_total\S* (\S+)$", metrics, re.M)))


@contextmanager
def _background(base_url: str, key: str, num: int) -> Iterator[None]:
    headers = {"authorization": f"Bearer {key}"}
    with httpx.Client(base_url=base_url, headers=headers, timeout=60) as client:
        made = [client.post("/v1/responses", json=_BACKGROUND) for _ in range(num)]
        yield
        for each in made:
            client.delete(f"/v1/responses/{each.raise_for_status().json()['id']}")


if __name__ == "__main__":
    sys.exit(main())
