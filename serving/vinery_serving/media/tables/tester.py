"""Tests a URL or a path step by step, as a request would fetch it. Nothing is kept.

Rules, addresses, redirects and bytes come from the fetcher of requests. The file is then decoded in
a process of its own.
"""

import asyncio
import threading
from dataclasses import dataclass, replace
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import PermissionDenied
from rest_framework import serializers

from vinery_accounts.access.access import Access
from vinery_accounts.models import Organization, Project, Role
from vinery_accounts.resources.base import Conflict, RowAction
from vinery_accounts.resources.fields import StrictSerializer, VisibleRelatedField
from vinery_serving.core.errors import ServingError
from vinery_serving.core.media import PathSource, UrlSource
from vinery_serving.media.decoding import probe
from vinery_serving.media.fetching import Fetched, MediaFetcher, Wanted
from vinery_serving.media.files import is_file_url
from vinery_serving.media.rules import Denial, MediaDenied, MediaPolicy, Permit, Step
from vinery_serving.media.tables.policies import MediaPolicies

# A test occupies a thread, and a connection to a server that may be slow.
_RUNNING: Final = threading.BoundedSemaphore(4)


@dataclass(frozen=True, slots=True)
class Verdict:
    """All steps up to the first that refuses."""

    steps: tuple[Step, ...]
    denial: Denial | None = None  # None: allowed, or refused for another reason than the rules

    @property
    def is_allowed(self) -> bool:
        return all(step.is_ok is not False for step in self.steps)

    @property
    def decision(self) -> str:
        return "allowed" if self.is_allowed else "refused"

    def seen_by(self, access: Access) -> "Verdict":
        """Return what a user may see: addresses, which may be private, are for administrators."""
        steps = [
            step if step.name != "addresses" else replace(step, text="all are allowed")
            for step in self.steps
        ]
        return self if access.is_superuser else replace(self, steps=tuple(steps))


def test(text: str, organization_id: int | None, project_id: int | None) -> Verdict:
    """Test a URL or a path for a caller with these ids. Blocks until the file is fetched, as long
    as its rule allows. Raises `django.db.Error`, and `Conflict` while too many tests run."""
    policies = MediaPolicies()
    policies.refresh()
    policy = policies.policy_of(organization_id, project_id)
    if not _RUNNING.acquire(blocking=False):
        raise Conflict("Too many tests are running. Try again in a moment.")
    try:
        return _verdict(text.strip(), policy)
    finally:
        _RUNNING.release()


def _verdict(text: str, policy: MediaPolicy) -> Verdict:
    is_path = text.startswith("/") or is_file_url(text)
    source = PathSource(text) if is_path else UrlSource(text)
    steps: list[Step] = []
    for level in policy.levels:
        if (level.folders if is_path else level.urls) is None:
            text = f"{level.whose} has none of its own, and adds none"
            steps.append(Step("rule", None, text))
    permit = Permit(policy, "", steps.append)

    async def fetch() -> Fetched:
        return await MediaFetcher().fetch(Wanted(source, param=""), permit)

    try:
        # In a loop of its own: the loop of the web process has requests to serve.
        content = asyncio.run(fetch())
    except MediaDenied as error:
        denial = error.denial
        rule = f" ({denial.level}, rule {denial.rule_id})" if denial.rule_id else ""
        return Verdict((*steps, Step("denied", False, error.message + rule)), denial)
    except ServingError as error:
        return Verdict((*steps, Step("failed", False, error.message)))
    max_frames = settings.VINERY_DECODE_LIMITS["max_frames"]
    found = probe(content.data, content.max_pixels, max_frames)
    return Verdict((*steps, Step("decoding", *found)))


class MediaTestSerializer(StrictSerializer):
    """A URL or a path, and the caller of the test."""

    what = serializers.CharField(
        max_length=8192, help_text="A URL or a path, as a client would send it."
    )
    organization = VisibleRelatedField(
        Organization,
        required=False,
        allow_null=True,
        help_text="For a request of this organisation; null without a project: of a caller "
        "without a key.",
    )
    project = VisibleRelatedField(
        Project,
        "organization",
        required=False,
        allow_null=True,
        help_text="For a request of this project.",
    )


class MediaStepSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """One check of a URL or a file."""

    name = serializers.CharField()
    is_ok = serializers.BooleanField(
        allow_null=True, help_text="null: it neither allows nor refuses."
    )
    text = serializers.CharField()


class MediaVerdictSerializer(serializers.Serializer):  # type: ignore[type-arg]
    """What would happen to a URL or a file, up to the first step that refuses it."""

    is_allowed = serializers.BooleanField()
    steps = MediaStepSerializer(many=True)


def _test(access: Access, what: str, **values: Any) -> Verdict:
    """Owners test for what they own, administrators for all callers."""
    project, organization = values.get("project"), values.get("organization")
    if project is not None:
        organization = project.organization
    ids = (organization and organization.pk, project and project.pk)
    if not access.leads(*ids, Role.OWNER):
        raise PermissionDenied("Your role does not allow this. Ask an owner or administrator.")
    return test(what, *ids).seen_by(access)


TEST: Final = RowAction(
    "test",
    _test,
    "Test a URL or a path, step by step, as a request would fetch or read it. Nothing is kept. "
    "Owners test for what they own, administrators for all callers.",
    serializer=MediaTestSerializer,
    answer=MediaVerdictSerializer,
    is_of_list=True,
)
