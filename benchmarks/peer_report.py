"""What `python -m benchmarks.peers` writes: its document, its part of docs/performance.md, and the
table and the picture of ratios in README.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from benchmarks import performance
from benchmarks.aims import Aim
from benchmarks.compare import Spread
from benchmarks.machine import REPOSITORY, Calm, markdown
from benchmarks.measures import Summary
from benchmarks.picture import draw
from benchmarks.report import aligned, spread_range

VINERY: Final = "Vinery"
BARE: Final = "bare loop"
PROXIES: Final = ("LiteLLM before a scripted server", "LiteLLM before Vinery without keys")
GATEWAYS: Final = (
    *("Vinery with keys and limits", "Vinery without keys", "a scripted server"),
    *PROXIES,
)
README: Final = REPOSITORY / "README.md"
PICTURE: Final = REPOSITORY / "docs" / "peers.svg"


@dataclass(frozen=True)
class Point:
    """A side with so many users at once."""

    side: str
    num_users: int
    ratio: Spread  # tokens/s of Vinery by those of the side
    same_texts: float  # as Vinery's, 0..1
    speed: Summary  # medians over the rounds


@dataclass(frozen=True)
class Gateway:
    """Unary chats of one token through a gateway."""

    name: str
    requests_per_core_s: float
    ratio: Spread | None  # of Vinery with keys and limits, by a proxy
    p50_ms: float
    added_ms: float | None


@dataclass(frozen=True)
class PeerReport:
    """An invocation. `absent` has the reason of each peer that was not measured to the end."""

    settings: dict[str, Any]
    machine: dict[str, Any]
    versions: dict[str, str]
    first_words: dict[str, str]
    absent: dict[str, str]
    points: tuple[Point, ...]
    gateways: tuple[Gateway, ...]
    calms: tuple[Calm, ...]

    @property
    def aims(self) -> tuple[Aim, ...]:
        return (*self._of_servers(), *self._of_proxies())

    def _of_servers(self) -> Iterator[Aim]:
        known = {(each.side, each.num_users): each.ratio.median for each in self.points}
        sides = dict.fromkeys([BARE, *self.versions, *self.absent, *(s for s, _ in known)])
        for side in sides:
            for users in self.settings["users"] if side not in (VINERY, "LiteLLM") else ():
                what = f"{side}, {users} at once: tokens/s of Vinery by its own"
                least = 0.97 if side == BARE else 1.0
                yield Aim(what, least, known.get((side, users)), is_least=True)

    def _of_proxies(self) -> Iterator[Aim]:
        known = {each.name: each.ratio.median for each in self.gateways if each.ratio}
        for name in PROXIES:
            what = f"{name}: requests/s per core of Vinery with keys and limits by its own"
            yield Aim(what, 1.0, known.get(name), is_least=True)

    def document(self, now: datetime) -> dict[str, Any]:
        measured_at = now.astimezone(UTC).isoformat(timespec="seconds")
        aims = [aim.document() for aim in self.aims]
        return {"measured_at": measured_at, "aims": aims} | asdict(self)


def publish(report: PeerReport, earlier: Mapping[str, float], now: datetime) -> None:
    """Write the picture, and both sections."""
    PICTURE.write_text(draw("Vinery beside other servers", report.aims), encoding="utf-8")
    performance.replace(performance.PAGE, "peers", section(report, earlier, now))
    performance.replace(README, "peers", _summary(report))


def section(report: PeerReport, earlier: Mapping[str, float], now: datetime) -> list[str]:
    """The lines for docs/performance.md."""
    versions = [f"{name}: {version}" for name, version in report.versions.items()]
    return [
        "## Beside other servers",
        "",
        f"`make bench-peers` measured these figures on {now.astimezone(UTC):%Y-%m-%d}. All servers "
        "have the same weights, prompts and number of threads, and are asked in turn.",
        "",
        *performance.machine_lines(report.machine),
        *(f"- {each}" for each in (*versions, *_absences(report))),
        "",
        "![Vinery beside other servers](peers.svg)",
        "",
        *performance.aim_table(report.aims, earlier),
        *performance.busy_lines(report.calms),
        "```text",
        *aligned(*_servers(report)),
        "```",
        "",
        "```text",
        *aligned(*_gateways(report)),
        "```",
    ]


def _summary(report: PeerReport) -> list[str]:
    users = report.settings["users"]
    ratios = {(each.side, each.num_users): each.ratio.median for each in report.points}
    sides = [side for side in dict.fromkeys(side for side, _ in ratios) if side != VINERY]
    head = ("Vinery beside", *(f"tokens/s, {num} at once" for num in users), "requests/s per core")
    rows = [(side, *(_times(ratios.get((side, num))) for num in users), "-") for side in sides]
    proxies = [(each.name, each.ratio.median) for each in report.gateways if each.ratio]
    rows += [(name, *("-" for _ in users), _times(ratio)) for name, ratio in proxies]
    return [
        "## Beside other servers",
        "",
        "The same weights, prompts and clients on one machine. A ratio above 1 is in favour of "
        "Vinery; the bare loop is the engine without a server.",
        "",
        *markdown(head, *rows),
        "",
        *(f"- {each}" for each in _absences(report)),
        *([""] if report.absent else []),
        "![Vinery beside other servers](docs/peers.svg)",
        "",
        "[Performance](docs/performance.md) has the figures, the machine and the versions; "
        "`make bench-peers` measures them anew.",
    ]


def _absences(report: PeerReport) -> list[str]:
    return [f"{name} was not measured: {reason}" for name, reason in report.absent.items()]


def _servers(report: PeerReport) -> Iterator[tuple[str, ...]]:
    yield (
        *("users", "server", "tok/s", "Vinery by it", "(lowest-highest)", "first token ms"),
        *("gap p50 ms", "gap p99 ms", "same text", "same first words"),
    )
    for each in report.points:
        yield (
            str(each.num_users),
            each.side,
            f"{each.speed.tokens_per_s:.0f}",
            f"{each.ratio.median:.2f}",
            spread_range(each.ratio),
            f"{each.speed.first_token_p50_ms:.0f}",
            f"{each.speed.token_gap_p50_ms:.1f}",
            f"{each.speed.token_gap_p99_ms:.1f}",
            f"{each.same_texts:.0%}",
            report.first_words.get(each.side, "-"),
        )


def _gateways(report: PeerReport) -> Iterator[tuple[str, ...]]:
    yield "gateway", "requests/s per core", "Vinery by it", "p50 ms", "added ms"
    for each in report.gateways:
        yield (
            each.name,
            f"{each.requests_per_core_s:.0f}",
            _times(each.ratio.median if each.ratio else None),
            f"{each.p50_ms:.2f}",
            "-" if each.added_ms is None else f"{each.added_ms:.2f}",
        )


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"
