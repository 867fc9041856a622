"""The playground: its script asks models over the public API, as any client does.

The API takes keys only. So each person has one key for the playground in each project, whose secret
is in the person's session. Limits, usage, the audit log and the list of keys treat this key as any
other. A session without the secret, and an expired key, get a new secret for the same key."""

import json
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.utils import timezone

from vinery_accounts.access import audit
from vinery_accounts.base.errors import KeyRefused
from vinery_accounts.console.keys import projects_for
from vinery_accounts.console.page import Page, at
from vinery_accounts.keys.lifecycle import find_key, renew_key
from vinery_accounts.models import ApiKey, KeyState, Project, Scope
from vinery_accounts.resources.fields import id_of
from vinery_accounts.resources.keys import KEYS

_LIFETIME: Final = timedelta(hours=12)
# A key of the person that differs in one of these is not the playground's.
_MARKS: Final[dict[str, Any]] = {
    "name": "Playground",
    "note": "Made by the playground of the console.",
    "scopes": [Scope.INFERENCE.value],
}
_SECRETS: Final = "playground_secrets"  # in the session, by the project's id
# Web processes know a new secret after about a second.
_KNOWN_AFTER: Final = timedelta(seconds=1.5)


@at("playground/", "playground")
class Playground(Page):
    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        projects = list(projects_for(self.access, self.user))
        return super().get_context_data(**kwargs) | {"projects": projects}


@at("playground/key/", "playground-key")
class PlaygroundKey(Page):
    """Answers the page's script with the secret of the person's key in a project."""

    http_method_names = ("post",)

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        number = id_of(request.POST.get("project", ""))
        project = projects_for(self.access, self.user).filter(pk=number).first()
        if project is None:
            return _refused(403, "You may not use keys of this project. Choose another project.")
        # One writer at a time: two windows of a person do not both create the key.
        with audit.writing():
            keys = ApiKey.objects.filter(owner=self.user, project=project, **_MARKS)
            key = keys.filter(revoked_at=None, replaced_by=None).order_by("-pk").first()
            if key is not None and key.state_at(timezone.now()) is KeyState.PAUSED:
                return _refused(409, f"Your key {key} is paused. Resume or revoke it under Keys.")
            secret = self._known_secret(project, key) or self._new_secret(project, key)
        since = timezone.now() - find_key(secret).updated_at
        wait = max(_KNOWN_AFTER - since, timedelta(0))
        return JsonResponse({"secret": secret, "wait_ms": round(wait.total_seconds() * 1000)})

    def _known_secret(self, project: Project, key: ApiKey | None) -> str:
        secret: str = self.request.session.get(_SECRETS, {}).get(str(project.pk), "")
        try:
            return secret if find_key(secret) == key else ""
        except KeyRefused:
            return ""

    def _new_secret(self, project: Project, key: ApiKey | None) -> str:
        expires_at = timezone.now() + _LIFETIME
        new: Any
        if key is None:
            columns = {"owner": self.user, "project": project, "expires_at": expires_at}
            new = KEYS.create(self.access, columns | _MARKS)
        else:
            KEYS.check(self.access, key, key)
            new = renew_key(key, expires_at=expires_at)
        kept = self.request.session.get(_SECRETS, {})
        self.request.session[_SECRETS] = kept | {str(project.pk): new.secret}
        return str(new.secret)


def _refused(status: int, text: str) -> HttpResponse:
    return JsonResponse({"error": {"message": text}}, status=status)


_ENDPOINTS: Final = ("chat/completions", "completions", "responses", "messages")


def link_of(body: bytes, endpoint: str, project_id: int | None) -> str:
    """Return the address of the playground with a request, which the page's script reads; empty for
    a request without a conversation. Browsers send no server what follows the `#`."""
    try:
        asked = json.loads(body) if endpoint in _ENDPOINTS else None
    except ValueError:  # the text is cut
        asked = None
    shared = json.dumps({"request": asked, "project": str(project_id)})
    return f"{reverse('console:playground')}#{quote(shared)}" if asked else ""
