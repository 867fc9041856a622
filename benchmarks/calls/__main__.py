"""`python -m benchmarks.calls`: how many tool calls are read whole.

For each family of outputs and each kind of damage, samples are drawn from a seed: the same seed
gives the same samples. A call is read whole if the client gets its name and its arguments as they
were meant, and no other call.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from random import Random

from benchmarks.calls.damage import KINDS, Sample, samples
from benchmarks.calls.forms import FORMS
from benchmarks.calls.reading import Verdict, judge

_COLUMNS = ("neighbours", "valid JSON", "markup", "parts")


def main(argv: list[str] | None = None) -> int:
    """Print the table. Returns 1 if an invariant does not hold."""
    options = _options(argv)
    print(f"seed {options.seed}, {options.number} outputs of each kind: calls read whole\n")
    print(_row("family", [*KINDS, *_COLUMNS]))
    print(_row("---", ["---"] * (len(KINDS) + len(_COLUMNS))))
    is_right = True
    for family in options.family or FORMS:
        verdicts = [list(_verdicts(family, kind, options)) for kind in KINDS]
        every = [verdict for each in verdicts for verdict in each]
        print(_row(family, [*map(_cell, verdicts), *_totals(every)]), flush=True)
        is_right = is_right and not any(each.differs_in_parts for each in every)
    return 0 if is_right else 1


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=__doc__)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--number", type=int, default=200, help="outputs of each kind")
    parser.add_argument("--family", action="append", choices=FORMS, help="one family alone")
    parser.add_argument("--show", action="append", choices=KINDS, help="print what is lost")
    return parser.parse_args(argv)


def _verdicts(family: str, kind: str, options: argparse.Namespace) -> Iterator[Verdict]:
    for sample in samples(family, kind, options.number, options.seed):
        verdict = judge(family, sample, _cuts(sample, options.seed))
        if options.show and kind in options.show and verdict.num_whole < verdict.num_calls:
            print(f"{kind}: {sample.text!r}\n", file=sys.stderr)
        yield verdict


def _cuts(sample: Sample, seed: int) -> Iterator[list[str]]:
    """Character by character, and at random borders."""
    text, random = sample.text, Random(f"{seed} {sample.text}")
    yield list(text)
    borders = sorted(random.choices(range(len(text) + 1), k=6))
    yield [text[a:b] for a, b in zip([0, *borders], [*borders, len(text)], strict=True)]


def _cell(verdicts: Sequence[Verdict]) -> str:
    total = sum(verdict.num_calls for verdict in verdicts)
    return f"{sum(verdict.num_whole for verdict in verdicts)}/{total}" if total else "-"


def _totals(every: Sequence[Verdict]) -> list[str]:
    return [
        f"{sum(v.num_neighbours_whole for v in every)}/{sum(v.num_neighbours for v in every)}",
        f"{sum(v.num_valid for v in every)}/{sum(v.num_ended for v in every)}",
        str(sum(v.has_markup for v in every)),
        str(sum(v.differs_in_parts for v in every)),
    ]


def _row(first: str, cells: Sequence[str]) -> str:
    return f"| {first} | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
