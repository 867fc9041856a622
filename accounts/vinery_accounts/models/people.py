"""Users, organisations, projects, and the roles of users there."""

from __future__ import annotations

from typing import ClassVar, Final

from django.contrib.auth import models as auth
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator
from django.db import models

from vinery_accounts.base.names import check_characters, check_name, check_name_without_slash
from vinery_accounts.base.querysets import Stamped, StampedQuerySet
from vinery_accounts.base.redaction import check_redactions


class UserManager(auth.UserManager["User"]):
    def get_queryset(self) -> StampedQuerySet[User]:
        return StampedQuerySet(self.model, using=self._db)


class User(Stamped, auth.AbstractUser):
    """A person or a service account that owns keys."""

    first_name = models.CharField(max_length=150, blank=True, validators=[check_characters])
    last_name = models.CharField(max_length=150, blank=True, validators=[check_characters])
    is_service = models.BooleanField(
        "service account",
        default=False,
        help_text="A program's account: it owns keys and cannot sign in.",
    )
    is_email_confirmed = models.BooleanField(
        "address confirmed",
        default=True,
        help_text="An administrator of the platform or the issuer gave the address. Sign-in "
        "through the issuer ignores addresses that owners of organisations gave.",
    )
    time_zone = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="Of the times on the console's pages; empty: that of the browser.",
    )

    objects: ClassVar[UserManager] = UserManager()  # type: ignore[assignment]

    class Meta(auth.AbstractUser.Meta):
        indexes = [
            # Inactive users are few; the key table asks for them every second.
            models.Index(fields=["id"], condition=models.Q(is_active=False), name="user_inactive"),
            # So are superusers, which it counts.
            models.Index(fields=["id"], condition=models.Q(is_superuser=True), name="superuser"),
        ]

    def clean(self) -> None:
        """Raises ValidationError for a new name that differs from another user's only in case.
        Wrong passwords are counted for such names together, and people confuse them."""
        super().clean()
        if not self.username.isprintable():
            return  # another validator refuses it, and PostgreSQL cannot query for NUL
        other = User.objects.filter(username__iexact=self.username).exclude(pk=self.pk).first()
        if other is not None and other.username != self.username and self._has_new_name():
            raise ValidationError({"username": f"There is a user {other} already."})

    def _has_new_name(self) -> bool:
        """Whether the name differs from the stored one: older names stay valid."""
        return not User.objects.filter(pk=self.pk, username=self.username).exists()


class Organization(Stamped):
    """A company or a team. Only its members see what belongs to it."""

    name = models.CharField(max_length=100, unique=True, validators=[check_name_without_slash])
    is_active = models.BooleanField(
        "active", default=True, help_text="All keys of an inactive organisation are refused."
    )
    created_at = models.DateTimeField("created", auto_now_add=True)

    class Meta:
        verbose_name = "organisation"
        ordering = ["name"]
        indexes = [
            models.Index(fields=["id"], condition=models.Q(is_active=False), name="org_inactive")
        ]

    def __str__(self) -> str:
        return self.name


MAX_CAPTURE_HOURS = 720


class Project(Stamped):
    """A part of an organisation: keys belong to it, and usage is counted by it."""

    organization = models.ForeignKey(
        Organization, on_delete=models.PROTECT, related_name="projects", verbose_name="organisation"
    )
    name = models.CharField(max_length=100, validators=[check_name_without_slash])
    is_active = models.BooleanField(
        "active", default=True, help_text="All keys of an inactive project are refused."
    )
    capture_hours = models.PositiveSmallIntegerField(
        "prompt logging: retention (hours)",
        default=0,
        validators=[MaxValueValidator(MAX_CAPTURE_HOURS)],
        help_text="How long prompts and answers are kept, encrypted, for admins of the "
        "organisation: up to 720 hours. 0 keeps nothing and deletes what was kept.",
    )
    capture_redactions = models.JSONField(
        "redaction rules",
        default=list,
        blank=True,
        validators=[check_redactions],
        help_text="What is redacted from kept texts: email, card, phone, ip or secret, or any "
        "literal words. These words are stored and logged in plain text.",
    )
    hashes_end_users = models.BooleanField(
        "hash end users",
        default=False,
        help_text="Usage records have a hash instead of what clients send as `user`.",
    )
    response_days = models.PositiveSmallIntegerField(
        "stored responses: days",
        null=True,
        blank=True,
        default=30,
        validators=[MaxValueValidator(3650)],
        help_text="How long responses and chats are kept, encrypted, so that clients can continue "
        "them: up to 3650 days. 0 keeps none. Empty: nobody has decided, and none are kept.",
    )
    max_stored_mb = models.PositiveIntegerField(
        "stored responses: MB",
        default=1024,
        db_default=1024,
        help_text="The most that responses, conversations and chats may take. 0 is no limit.",
    )
    created_at = models.DateTimeField("created", auto_now_add=True)

    class Meta:
        ordering = ["organization__name", "name"]
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "name"],
                name="project_name_in_organization",
                violation_error_message="This organisation has a project of that name.",
            )
        ]
        indexes = [
            models.Index(
                fields=["id"], condition=models.Q(is_active=False), name="project_inactive"
            )
        ]

    def __str__(self) -> str:
        return f"{self.organization} / {self.name}"


class Role(models.TextChoices):
    """What a member may do. Each role includes the rights of the roles after it."""

    OWNER = "owner", "owner"
    ADMIN = "admin", "admin"
    MEMBER = "member", "member"
    VIEWER = "viewer", "viewer"


class Membership(models.Model):
    """A user's role in an organisation, or in one of its projects alone. `access/access` has the
    permissions of each role."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    organization = models.ForeignKey(
        Organization,
        on_delete=models.CASCADE,
        related_name="memberships",
        verbose_name="organisation",
    )
    project = models.ForeignKey(
        Project,
        on_delete=models.CASCADE,
        related_name="memberships",
        null=True,
        blank=True,
        help_text="Empty: the role holds in the whole organisation.",
    )
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.MEMBER)
    created_at = models.DateTimeField("created", auto_now_add=True)

    class Meta:
        ordering = ["organization__name", "project__name", "user__username"]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "organization"],
                condition=models.Q(project=None),
                name="one_role_in_an_organization",
                violation_error_message="This user has a role in the organisation already.",
            ),
            models.UniqueConstraint(
                fields=["user", "project"],
                condition=models.Q(project__isnull=False),
                name="one_role_in_a_project",
                violation_error_message="This user has a role in the project already.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user} is {self.role} of {self.scope}"

    @property
    def scope(self) -> Organization | Project:
        return self.project or self.organization


class Invitation(models.Model):
    """A role that is offered to a user by name, until the user accepts or declines it. The name is
    a text: an owner who invites does not learn whether there is such a user."""

    username = models.CharField(max_length=150, validators=[check_name])
    organization = models.ForeignKey(
        Organization,
        on_delete=models.CASCADE,
        related_name="invitations",
        verbose_name="organisation",
    )
    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, related_name="invitations", null=True, blank=True
    )
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.MEMBER)
    invited_by = models.CharField(max_length=150, editable=False, default="")
    created_at = models.DateTimeField("created", auto_now_add=True)
    expires_at = models.DateTimeField("expires", db_index=True, editable=False)

    class Meta:
        ordering = ["username", "id"]
        indexes = [models.Index(fields=["username"], name="invitation_by_name")]

    def __str__(self) -> str:
        return f"{self.username} as {self.role} of {self.scope}"

    @property
    def scope(self) -> Organization | Project:
        return self.project or self.organization


class SavedView(models.Model):
    """A page of the console with its filters, under a name of the person's own choice."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="saved_views")
    name = models.CharField(max_length=60, validators=[check_name])
    page = models.CharField(max_length=32, help_text="The name of its URL, such as requests.")
    query = models.CharField(max_length=2000, blank=True, help_text="Without the question mark.")
    mail_every = models.CharField(
        max_length=5, blank=True, db_default="", choices={"week": "weekly", "month": "monthly"}
    )
    mailed_at = models.DateTimeField(null=True, editable=False, help_text="Or when chosen.")
    mail_error = models.CharField(max_length=100, blank=True, editable=False, db_default="")
    created_at = models.DateTimeField("created", auto_now_add=True)

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(fields=["user", "page", "name"], name="one_view_of_a_name")
        ]

    def __str__(self) -> str:
        return self.name


# -- Rows of other apps


class ScopedRow(models.Model):
    """A row that holds for the platform, for an organisation or for one of its projects."""

    organization = models.ForeignKey(
        Organization,
        on_delete=models.CASCADE,
        related_name="+",
        null=True,
        blank=True,
        verbose_name="organisation",
        help_text="Empty: for the whole platform.",
    )
    project = models.ForeignKey(
        Project,
        on_delete=models.CASCADE,
        related_name="+",
        null=True,
        blank=True,
        help_text="Empty: for the whole organisation.",
    )

    class Meta:
        abstract = True

    @property
    def scope(self) -> str:
        """`platform`, `organization` or `project`."""
        if self.project_id is not None:
            return "project"
        return "platform" if self.organization_id is None else "organization"

    @property
    def whose(self) -> str:
        return str(self.project or self.organization or "the platform")

    def clean(self) -> None:
        if self.project_id is not None and self.organization_id is None:
            raise ValidationError({"organization": "Name the organisation of the project, too."})


def unique_in_scope(name: str, *columns: str, message: str) -> list[models.BaseConstraint]:
    """Return the constraints for one row with these columns in each scope: NULLs of a table are
    all different, so each scope has a constraint of its own."""
    return [
        models.UniqueConstraint(
            fields=[*scope, *columns],
            condition=condition,
            name=f"{name}_{kind}",
            violation_error_message=message,
        )
        for kind, scope, condition in _SCOPES
    ]


_SCOPES: Final = (
    ("platform", (), models.Q(organization=None)),
    ("organization", ("organization",), models.Q(project=None, organization__isnull=False)),
    ("project", ("project",), models.Q(project__isnull=False)),
)
