"""The result of showing a vision model known pictures. It needs no database to exist."""

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone


@dataclass(frozen=True, slots=True)
class PictureReport:
    """What a vision model made of known pictures. Of a text model it is empty."""

    verdict: str = ""  # a value of `PictureVerdict`
    summary: str = ""
    device: str = ""

    def columns(self, asked_at: datetime | None = None) -> dict[str, object]:
        """Return the columns of `EngineStatus`. `asked_at` is when an administrator asked for it,
        perhaps by the clock of another host."""
        now = timezone.now()
        return {
            "picture_verdict": self.verdict,
            "picture_test": self.summary,
            "picture_test_device": self.device,
            "picture_tested_at": max(now, asked_at or now) if self.verdict else None,
        }
