"""How full limits are, as lines of an answer: OpenAI's `x-ratelimit-*` headers.

Every answer passes through here, so what does not change of a rule is made once. Pure
functions from readings to bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from accounts.limits.leases import Reading, reset_ms
from accounts.limits.memo import ByIdentity
from accounts.limits.rules import GRAINS, Metric, Rule

Line = tuple[bytes, bytes]

# Limits on input or output alone are tokens to a client, too. Weighted tokens are not: a
# client could not tell how many of its own they are.
_TOKENS = (Metric.TOKENS, Metric.INPUT_TOKENS, Metric.OUTPUT_TOKENS)


def lines_of(reading: Reading) -> list[Line]:
    """The headers of an answer.

    Of several rules on requests, or on tokens, the one with the least share left is told.
    A rule on a project's tokens is told under its own names as well. Shadow rules are not.
    """
    return _lines(_names(reading.rules), reading)


def lines_of_one(rule: Rule, reading: Reading) -> list[Line]:
    """The same for a single rule of a reading, as if there were no other; none if it is not
    in it."""
    places = [place for place, each in enumerate(reading.rules) if each == rule]
    used = [reading.used[place] for place in places]
    only = Reading((rule,) * len(used), used, reading.now_ms)
    return _lines(_make_names(only.rules), only)


def _lines(names: Iterable[_Name], reading: Reading) -> list[Line]:
    lines: list[Line] = []
    told = None
    for name in names:
        place, rule, _, limit = _least_left(name.candidates, reading.used)
        if rule is not told:  # two names often tell of the same
            told = rule
            used = reading.used[place]
            left = rule.amount + -used // GRAINS  # a part of a token is not there to be used
            remaining = b"%d" % (left if left > 0 else 0)
            wait_ms = reset_ms(rule, used, reading.now_ms)
            reset = None if wait_ms is None else go_duration(wait_ms).encode()
        lines.append(limit)
        lines.append((name.remaining, remaining))
        if reset is not None:
            lines.append((name.reset, reset))
    return lines


def go_duration(ms: int) -> str:
    """As Go writes durations: `12ms`, `1.146s`, `6m0s`, `114h18m0s`."""
    if ms < 1000:
        return f"{ms}ms" if ms > 0 else "0s"
    s, fraction = ms // 1000, _FRACTIONS[ms % 1000]
    if s >= 3600:
        return f"{s // 3600}h{s // 60 % 60}m{s % 60}{fraction}s"
    return f"{s // 60}m{s % 60}{fraction}s" if s >= 60 else f"{s}{fraction}s"


_FRACTIONS = ("", *(f".{ms:03}".rstrip("0") for ms in range(1, 1000)))
# A rule's place in a reading, its capacity in grains, and the line that tells its amount.
_Candidate = tuple[int, Rule, int, Line]


class _Name(msgspec.Struct, frozen=True):
    """Two headers, and the rules that may be told in them."""

    remaining: bytes
    reset: bytes
    candidates: tuple[_Candidate, ...]


def _make_names(rules: tuple[Rule, ...]) -> tuple[_Name, ...]:
    candidates: defaultdict[str, list[_Candidate]] = defaultdict(list)
    for place, rule in enumerate(rules):
        for name in _names_of(rule):
            limit = f"x-ratelimit-limit-{name}".encode(), b"%d" % rule.amount
            candidates[name].append((place, rule, rule.capacity, limit))
    return tuple(
        _Name(
            f"x-ratelimit-remaining-{name}".encode(),
            f"x-ratelimit-reset-{name}".encode(),
            tuple(of),
        )
        for name, of in candidates.items()
    )


_names = ByIdentity(_make_names)


def _names_of(rule: Rule) -> tuple[str, ...]:
    """Under which names a rule may be told."""
    if rule.is_shadow:
        return ()
    if rule.metric is Metric.REQUESTS:
        return ("requests",)
    if rule.metric not in _TOKENS:
        return ()
    return ("tokens", "project-tokens") if rule.scope.startswith("project:") else ("tokens",)


def _least_left(candidates: Sequence[_Candidate], used: Sequence[int]) -> _Candidate:
    """The one of which the largest share is used. One of nothing is used up."""
    fullest = candidates[0]
    if len(candidates) > 1:
        most = -1.0
        for candidate in candidates:
            capacity = candidate[2]
            share_used = used[candidate[0]] / capacity if capacity else 1.0
            if share_used > most:
                fullest, most = candidate, share_used
    return fullest
