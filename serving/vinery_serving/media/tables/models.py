"""The tables of media rules, and of the media that they refused."""

from collections.abc import Callable, Collection
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Value
from django.db.models.functions import Coalesce

from vinery_accounts.base.names import check_characters
from vinery_accounts.base.querysets import Stamped
from vinery_accounts.models import ScopedRow
from vinery_accounts.models.people import unique_in_scope
from vinery_serving.media.rules import Denial, DenialReason
from vinery_serving.media.tables import values

MAX_FOLDER: Final = 500
"""Characters of a folder: PostgreSQL indexes no text that is much longer."""
_MIB: Final = 1024 * 1024


def default_schemes() -> list[str]:
    return ["https"]


def check_timeout(value: float) -> None:
    """Raises ValidationError for NaN, and for a value outside of 0.1 to 120 seconds."""
    if not 0.1 <= value <= 120:
        raise ValidationError("Give from 0.1 to 120 seconds.")


def _between(least: int, most: int) -> list[Any]:
    return [MinValueValidator(least), MaxValueValidator(most)]


class _Rule(Stamped, ScopedRow):
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

    class Meta:
        verbose_name = "media rule"
        ordering = ["host", "id"]
        constraints = unique_in_scope(
            "one_media_rule", "host", message="There is a rule for this host already: change it."
        )

    def __str__(self) -> str:
        return self.host

    def readers(self) -> dict[str, Callable[[Any], Any]]:
        return {
            "host": values.host_pattern,
            "schemes": values.read_schemes,
            "ports": values.read_ports,
            "content_types": values.read_content_types,
            "networks": values.read_networks,
        }

    def clean(self) -> None:
        super().clean()
        if self.networks and self.organization_id is not None:
            text = "Only a rule of the platform allows addresses that are not public"
            raise ValidationError({"networks": f"{text}: leave this empty."})


class MediaFolder(_Rule):
    """Allows the files in a folder of the server, and in the folders below it."""

    folder = models.CharField(
        max_length=MAX_FOLDER, help_text="An absolute path on the server, without links."
    )

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
        """An owner of an organisation does not learn which folders the server has: only folders of
        the platform's rules are looked up."""
        return {
            "folder": values.read_folder if self.organization_id is None else values.read_absolute
        }


class MediaLimit(Stamped, ScopedRow):
    """The most media of a request, inline media included."""

    max_media = models.PositiveIntegerField(
        "max. media", validators=_between(0, 1000), help_text="Of one request; 0: none."
    )
    created_at = models.DateTimeField("created", auto_now_add=True)

    class Meta:
        verbose_name = "media limit"
        verbose_name_plural = "media limits"
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
    ("no_rule", "no rule allows it"),
    ("address", "the address is not public"),
    ("content_type", "content type"),
    ("max_bytes", "too many bytes"),
    ("max_pixels", "too many pixels"),
    ("max_redirects", "too many redirects"),
    ("timeout", "too slow"),
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
    def denial(self) -> Denial:
        where = (self.scheme, self.host, self.port, self.folder)
        return Denial(DenialReason(self.reason), self.level, *where, self.rule_id, self.detail)

    @property
    def what(self) -> str:
        return self.denial.what

    def why(self, *, with_address: bool = True) -> str:
        """Return the reason, whose rules refused it, and the refused value. Addresses are for
        administrators alone."""
        is_shown = with_address or self.reason != DenialReason.ADDRESS
        about = (self.level, self.detail if is_shown else "")
        return f"{dict(DENIAL_REASONS)[self.reason]} ({', '.join(filter(None, about))})"
