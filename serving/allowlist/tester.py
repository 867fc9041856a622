"""What would happen to a URL or a path of a request, step by step. Nothing is kept."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from vinery_accounts.outbound.urls import UrlRefused, read_url
from vinery_serving.allowlist.policies import MediaPolicies
from vinery_serving.media.policy import Level, MediaPolicy


@dataclass(frozen=True, slots=True)
class Step:
    """One check. `is_ok` None: it neither allows nor refuses."""

    name: str
    is_ok: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """All steps up to the first that refuses."""

    steps: tuple[Step, ...]

    @property
    def is_allowed(self) -> bool:
        return all(step.is_ok is not False for step in self.steps)

    @property
    def body(self) -> dict[str, Any]:
        """As JSON."""
        return {"is_allowed": self.is_allowed, "steps": [asdict(step) for step in self.steps]}


def test(text: str, organization_id: int | None, project_id: int | None) -> Verdict:
    """Test a URL or a path for a caller with these ids. Raises `django.db.Error`."""
    policies = MediaPolicies()
    policies.refresh()
    policy = policies.policy_of(organization_id, project_id)
    return Verdict(tuple(_until_refused(check_rules(text, policy))))


def _until_refused(steps: Iterator[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        if step.is_ok is False:
            return


def check_rules(text: str, policy: MediaPolicy) -> Iterator[Step]:
    """Yield what the rules of each level decide."""
    return _folder_rules(text, policy) if text.startswith("/") else _url_rules(text, policy)


def _url_rules(text: str, policy: MediaPolicy) -> Iterator[Step]:
    try:
        url = read_url(text)
    except UrlRefused as error:
        yield Step("URL", False, str(error))
        return
    yield Step("URL", True, f"host {url.host}, port {url.port}, scheme {url.scheme}")
    found = {level.scope: rule for level, rule in policy.url_rules(url.scheme, url.host, url.port)}
    for level in policy.levels:
        rule = found.get(level.scope)
        allowed = None if rule is None else f"rule {rule.id}, {rule.host}"
        yield _rule(level, allowed, has_rules=level.urls is not None)


def _folder_rules(path: str, policy: MediaPolicy) -> Iterator[Step]:
    for level in policy.levels:
        rules = level.folders or ()
        rule = next((each for each in rules if path.startswith(f"{each.folder}/")), None)
        text = None if rule is None else f"rule {rule.id}, {rule.folder}"
        yield _rule(level, text, has_rules=level.folders is not None)


def _rule(level: Level, text: str | None, *, has_rules: bool) -> Step:
    name = f"rules of {level.name or 'the platform'}"
    if not has_rules:
        return Step(name, None, "none of its own: those of the wider scope hold")
    return Step(name, text is not None, text or "no rule allows it")
