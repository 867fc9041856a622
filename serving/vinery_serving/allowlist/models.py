"""The tables of media rules, and of the media that they refused."""

import os
import re
from collections.abc import Callable, Collection
from pathlib import PurePosixPath
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Value
from django.db.models.functions import Coalesce

from vinery_accounts.base.names import check_characters
from vinery_accounts.base.querysets import Stamped, StampedQuerySet
from vinery_accounts.models import ScopedRow
from vinery_accounts.models.scoped import unique_in_scope
from vinery_accounts.outbound.addresses import read_networks
from vinery_serving.media.denials import DenialReason
from vinery_serving.media.hosts import host_pattern
from vinery_serving.media.policy import DEFAULT_PORTS

SCHEMES: Final = ("https", "http")
MAX_LIST: Final = 50
"""How many ports, content types or networks a rule may name."""
MAX_FOLDER: Final = 500
"""Characters of a folder: PostgreSQL indexes no text that is much longer."""
_MIB: Final = 1024 * 1024
_CONTENT_TYPE: Final = re.compile(r"(image|video|application)/(\*|[a-z0-9][a-z0-9.+-]*)")


def default_schemes() -> list[str]:
    return ["https"]


def check_timeout(value: float) -> None:
    """Raises ValidationError unless it is from 0.1 to 120 seconds, as NaN is not."""
    if not 0.1 <= value <= 120:
        raise ValidationError("Give from 0.1 to 120 seconds.")


def _between(least: int, most: int) -> list[Any]:
    return [MinValueValidator(least), MaxValueValidator(most)]


class _Rule(Stamped, ScopedRow):
    """What rules about URLs and folders share."""

    max_bytes = models.PositiveBigIntegerField(
        "max. bytes",
        default=20 * _MIB,
        validators=_between(1, 2048 * _MIB),
        help_text="The largest file.",
    )
    max_pixels = models.PositiveBigIntegerField(
        "max. pixels",
        default=40_000_000,
        validators=_between(1, 500_000_000),
        help_text="The largest picture, before it is scaled: width times height.",
    )
    note = models.CharField(
        max_length=500,
        blank=True,
        default="",
        validators=[check_characters],
        help_text="What it is for.",
    )
    is_active = models.BooleanField(
        "active",
        default=True,
        help_text="An inactive rule allows nothing. In an organisation or a project it still "
        "narrows: where all rules are inactive, nothing is allowed.",
    )
    created_at = models.DateTimeField("created", auto_now_add=True)

    class Meta:
        abstract = True

    def clean_fields(self, exclude: Collection[str] | None = None) -> None:
        """Check and normalise the fields. Raises ValidationError."""
        errors: dict[str, Any] = {}
        for name, read in self.readers().items():
            if name not in (exclude or ()):
                try:
                    setattr(self, name, read(getattr(self, name)))
                except ValueError as error:
                    errors[name] = [ValidationError(str(error))]
        try:
            super().clean_fields({*(exclude or ()), *errors})
        except ValidationError as error:
            errors = error.update_error_dict(errors)
        if errors:
            raise ValidationError(errors)

    def readers(self) -> dict[str, Callable[[Any], Any]]:
        """Return functions that return a field's value as it is stored, or raise ValueError."""
        raise NotImplementedError


class MediaRule(_Rule):
    """Allows the URLs of a host, or of all hosts below a domain."""

    host = models.CharField(
        max_length=255,
        help_text="A name such as images.example.org, or *.example.org for all below it.",
    )
    schemes = models.JSONField(default=default_schemes, help_text="https, http or both.")
    ports = models.JSONField(
        default=list, blank=True, help_text="Empty: 443 for https and 80 for http."
    )
    content_types = models.JSONField(
        default=list, blank=True, help_text="Such as image/png or image/*; empty: all that is read."
    )
    max_redirects = models.PositiveSmallIntegerField(
        "max. redirects",
        default=3,
        validators=_between(0, 10),
        help_text="Each target must be allowed, too.",
    )
    timeout_s = models.FloatField(
        "timeout (s)",
        default=10.0,
        validators=[check_timeout],
        help_text="From the first query for the address to the last byte.",
    )
    networks = models.JSONField(
        default=list,
        blank=True,
        help_text="Addresses that are not public and allowed nevertheless, such as 10.1.0.0/16. "
        "Only rules of the platform have them.",
    )

    objects = StampedQuerySet.as_manager()

    class Meta:
        verbose_name = "media rule"
        ordering = ["host", "id"]
        constraints = unique_in_scope(
            "one_media_rule",
            "host",
            message="There is a rule for this host already: change it.",
        )

    def __str__(self) -> str:
        return self.host

    def readers(self) -> dict[str, Callable[[Any], Any]]:
        return {
            "host": host_pattern,
            "schemes": _read_schemes,
            "ports": _read_ports,
            "content_types": _read_content_types,
            "networks": _read_networks,
        }

    def clean(self) -> None:
        super().clean()
        if self.networks and self.organization_id is not None:
            raise ValidationError(
                {
                    "networks": "Only a rule of the platform allows addresses that are not public: "
                    "leave this empty."
                }
            )


class MediaFolder(_Rule):
    """Allows the files in a folder of the server, and in the folders below it."""

    folder = models.CharField(
        max_length=MAX_FOLDER, help_text="An absolute path on the server, without links."
    )

    objects = StampedQuerySet.as_manager()

    class Meta:
        verbose_name = "media folder"
        ordering = ["folder", "id"]
        constraints = unique_in_scope(
            "one_media_folder",
            "folder",
            message="There is a rule for this folder already: change it.",
        )

    def __str__(self) -> str:
        return self.folder

    def readers(self) -> dict[str, Callable[[Any], Any]]:
        """An owner of an organisation does not learn which folders the server has: only those of
        the platform's rules are looked at."""
        is_of_platform = self.organization_id is None
        return {"folder": _read_folder if is_of_platform else _read_absolute}


class MediaLimit(Stamped, ScopedRow):
    """How many media a request may have, also those that it holds itself."""

    max_media = models.PositiveIntegerField(
        "max. media", validators=_between(0, 1000), help_text="Of one request; 0: none."
    )
    created_at = models.DateTimeField("created", auto_now_add=True)

    objects = StampedQuerySet.as_manager()

    class Meta:
        verbose_name = "number of media"
        verbose_name_plural = "numbers of media"
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                Coalesce("organization", Value(0), output_field=models.BigIntegerField()),
                Coalesce("project", Value(0), output_field=models.BigIntegerField()),
                name="one_media_limit",
                violation_error_message="There is a number already: change it.",
            )
        ]

    def __str__(self) -> str:
        return f"at most {self.max_media} in a request"


DENIAL_REASONS: Final = (
    (DenialReason.NO_RULE.value, "no rule allows it"),
    (DenialReason.ADDRESS.value, "the address is not public"),
    (DenialReason.CONTENT_TYPE.value, "content type"),
    (DenialReason.MAX_BYTES.value, "too many bytes"),
    (DenialReason.MAX_PIXELS.value, "too many pixels"),
    (DenialReason.MAX_REDIRECTS.value, "too many redirects"),
    (DenialReason.TIMEOUT.value, "too slow"),
)


class MediaDenial(models.Model):
    """Media that the rules refused, counted by caller, host or folder, and reason. Ids and names
    are copied, as in usage records. The path of a URL is never stored."""

    # 0: the caller had no key.
    organization_id = models.BigIntegerField(default=0)
    organization_name = models.CharField("organisation", max_length=100, blank=True, default="")
    project_id = models.BigIntegerField(default=0)
    project_name = models.CharField("project", max_length=100, blank=True, default="")
    level = models.CharField(max_length=16, help_text="Whose rules refused it.")
    reason = models.CharField(max_length=16, choices=DENIAL_REASONS)
    scheme = models.CharField(max_length=8, blank=True, default="")
    host = models.CharField(max_length=255, blank=True, default="")
    port = models.PositiveIntegerField(default=0)
    folder = models.CharField(max_length=MAX_FOLDER, blank=True, default="")
    rule_id = models.BigIntegerField(null=True, help_text="The rule whose value refused it.")
    detail = models.CharField(
        max_length=100, blank=True, default="", help_text="The last value that was refused."
    )
    num = models.PositiveBigIntegerField("count", default=0)
    first_at = models.DateTimeField("first")
    last_at = models.DateTimeField("last")

    class Meta:
        verbose_name = "refused media"
        verbose_name_plural = "refused media"
        ordering = ["-last_at", "-id"]
        indexes = [models.Index(fields=["organization_id", "-last_at"], name="denials_newest")]
        constraints = [
            models.UniqueConstraint(
                fields=[
                    *("organization_id", "project_id", "level", "reason", "scheme", "host"),
                    *("port", "folder"),
                ],
                name="one_media_denial",
            )
        ]

    def __str__(self) -> str:
        return self.what

    @property
    def what(self) -> str:
        """The folder, or the URL without its path."""
        if self.folder:
            return self.folder
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_usual = self.port == DEFAULT_PORTS.get(self.scheme)
        return f"{self.scheme}://{host}" if is_usual else f"{self.scheme}://{host}:{self.port}"


# -- Values as they are stored


def _read_schemes(value: Any) -> list[str]:
    names = _texts(value, "schemes")
    if not names or not set(names) <= set(SCHEMES):
        raise ValueError("Name https, http or both.")
    return names


def _read_ports(value: Any) -> list[int]:
    if not isinstance(value, list) or len(value) > MAX_LIST:
        raise ValueError(f"Give a list of up to {MAX_LIST} ports.")
    if not all(type(each) is int and 1 <= each <= 65535 for each in value):
        raise ValueError("A port is a whole number from 1 to 65535.")
    return sorted(set(value))


def _read_content_types(value: Any) -> list[str]:
    names = [name.lower() for name in _texts(value, "content types")]
    for name in names:
        if not _CONTENT_TYPE.fullmatch(name):
            raise ValueError(
                f"{name} is no type of a picture, a video or a PDF. Write one such as image/png, "
                "image/* or application/pdf."
            )
    return names


def _read_networks(value: Any) -> list[str]:
    texts = _texts(value, "networks")
    for text in texts:
        try:
            read_networks([text])
        except ValueError:
            raise ValueError(f"{text} is no network. Write one such as 10.1.0.0/16.") from None
    return [str(network) for network in read_networks(texts)]


def _texts(value: Any, what: str) -> list[str]:
    if not isinstance(value, list) or len(value) > MAX_LIST:
        raise ValueError(f"Give a list of up to {MAX_LIST} {what}.")
    if not all(isinstance(each, str) for each in value):
        raise ValueError(f"Give {what} as texts.")
    return sorted({each.strip() for each in value})


def _read_absolute(text: str) -> str:
    """Return the path without a slash at its end. Raises ValueError for one that is not absolute
    or names a parent."""
    path = PurePosixPath(text)
    if not path.is_absolute() or "\0" in text:
        raise ValueError(f"{text} is not an absolute path. Write one such as /srv/pictures.")
    if ".." in path.parts:
        raise ValueError("Leave out .. in the path.")
    if len(path.parts) < 2:
        raise ValueError("This would allow every file of the server. Name a folder in it.")
    return "/" + "/".join(path.parts[1:])


def _read_folder(text: str) -> str:
    """Return the path of a folder of the server. Raises ValueError, also for one behind a link."""
    path = _read_absolute(text)
    if not os.path.isdir(path):  # noqa: PTH112
        raise ValueError(f"There is no folder {path} on the server.")
    real = os.path.realpath(path)
    if real != path:
        raise ValueError(f"{path} is behind a link. Write the folder itself: {real}")
    return path
