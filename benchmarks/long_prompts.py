"""`python -m benchmarks.long_prompts`: a long prompt beside streams.

One key streams answers, without and with a long prompt of another key in between, in turns. The
largest gap of a stream may become three times as long, and the prompt take twice as long as alone:
ends with 1 when either is missed.
"""

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.__main__ import half_billion
from benchmarks.load import Endpoint, ServedModel
from benchmarks.machine import show
from benchmarks.measures import Run
from benchmarks.platform_under_test import own_platform, wait_until_it_answers
from benchmarks.prompts import PromptSource, rambling
from benchmarks.settings import HALF_BILLION, TINY_CHAT, default_cache

_MAX_GAP_RATIO: Final = 3.0
_MAX_PROMPT_RATIO: Final = 2.0


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_prompts")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256, help="of each stream")
    parser.add_argument("--words", type=int, default=8000, help="of the prompt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--after", type=float, default=3.0, help="seconds from the streams' begin")
    parser.add_argument("--folder", type=Path, help="of the model; else the 0.5b model")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="of that model")
    parser.add_argument("--same-key", action="store_true", help="the prompt has the streams' key")
    arguments = parser.parse_args(argv)
    folder = arguments.folder or half_billion(arguments.cache)
    short, long = (PromptSource(folder, rambling(words)) for words in (60, arguments.words))
    with own_platform() as platform, ThreadPoolExecutor(1) as thread:
        platform.remove(TINY_CHAT)
        platform.serve(HALF_BILLION, folder, {})
        other = platform.endpoint
        if not arguments.same_key:
            secret = platform.run("key", "create", "--name", "prompts").strip()
            other = Endpoint(other.base_url, secret)
            wait_until_it_answers(other, HALF_BILLION)
        with (
            ServedModel(platform.endpoint, HALF_BILLION) as streams,
            ServedModel(other, HALF_BILLION) as prompts,
        ):
            rounds = []
            for _ in range(1 + arguments.rounds):
                took_s = prompts.run(long.take(1), 1).duration_s
                without = streams.run(short.take(arguments.streams), arguments.tokens)
                ran = thread.submit(streams.run, short.take(arguments.streams), arguments.tokens)
                time.sleep(arguments.after)
                beside_s = prompts.run(long.take(1), 1).duration_s
                rounds.append((_gap_s(without), _gap_s(ran.result()), took_s, beside_s))
    del rounds[0]  # to warm up
    gaps = median(with_s / without_s for without_s, with_s, _, _ in rounds)
    times = median(beside_s / alone_s for _, _, alone_s, beside_s in rounds)
    for name, ratio, at in (("largest gap", gaps, 0), ("prompt", times, 2)):
        alone, beside = (median(each[at + more] for each in rounds) for more in (0, 1))
        show(f"{name}: {alone:.3f} s alone, {beside:.3f} s beside, ratio {ratio:.2f}")
    return 0 if gaps <= _MAX_GAP_RATIO and times <= _MAX_PROMPT_RATIO else 1


def _gap_s(run: Run) -> float:
    """The median of the streams' largest gaps."""
    return median(max(each.chunk_gaps_s) for each in run.streams)


if __name__ == "__main__":
    sys.exit(main())
