"""The rules of a caller: those of the platform, narrowed by organisation and project."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vinery_accounts.access import changes
from vinery_accounts.models import Project
from vinery_accounts.outbound.urls import Url
from vinery_serving.media.rules import Level, MediaPolicy
from vinery_serving.media.tables.models import MediaFolder, MediaLimit, MediaRule
from vinery_serving.media.tables.policies import MediaPolicies, level_of


def allows(policy: MediaPolicy, host: str, scheme: str = "https", port: int = 443) -> bool:
    return policy.allows(Url(scheme, host, port, "/"))


def read() -> MediaPolicies:
    policies = MediaPolicies()
    policies.refresh()
    return policies


def allow(host: str, **values: Any) -> MediaRule:
    return changes.add(MediaRule(host=host, **values))


def test_nothing_is_allowed_without_an_active_platform_rule(db: None, project: Project) -> None:
    for policies in (MediaPolicies(), read()):
        policy = policies.policy_of(None, None)
        assert not allows(policy, "a.example.org")
        assert policy.levels == (Level("platform", urls=(), folders=()),)

    allow("a.example.org")
    allow("c.example.org", is_active=False)

    policies = read()

    for caller in ((None, None), (project.organization_id, project.pk), (99, 99)):
        assert allows(policies.policy_of(*caller), "a.example.org")
        assert not allows(policies.policy_of(*caller), "b.example.org")
        assert not allows(policies.policy_of(*caller), "c.example.org")


def test_a_wildcard_allows_hosts_below_its_domain_after_rules_that_name_them(db: None) -> None:
    for host, num in (("*.example.org", 1), ("*.cdn.example.org", 2), ("a.cdn.example.org", 3)):
        allow(host, max_redirects=num)

    policy = read().policy_of(None, None)
    assert allows(policy, "a.example.org")
    assert allows(policy, "b.a.example.org")
    assert not allows(policy, "example.org")
    assert not allows(policy, "badexample.org")
    found = {
        host: rule.max_redirects
        for host in ("a.cdn.example.org", "b.cdn.example.org", "b.example.org")
        for _, rule in policy.rules_of(Url("https", host, 443, "/"))
        if rule
    }
    assert found == {"a.cdn.example.org": 3, "b.cdn.example.org": 2, "b.example.org": 1}


def test_inactive_rules_allow_nothing_and_narrow_nevertheless(project: Project) -> None:
    allow("a.example.org")
    rule = allow("a.example.org", organization=project.organization, is_active=False)
    assert not allows(read().policy_of(project.organization_id, project.pk), "a.example.org")

    changes.remove(rule)
    assert allows(read().policy_of(project.organization_id, project.pk), "a.example.org")


def test_levels_have_their_names_and_the_smallest_number_of_media(project: Project) -> None:
    changes.add(MediaLimit(organization=project.organization, max_media=3))
    changes.add(MediaFolder(organization=project.organization, project=project, folder="/srv/a"))

    policy = read().policy_of(project.organization_id, project.pk)
    assert [(level.scope, level.name) for level in policy.levels] == [
        ("platform", ""),
        ("organization", "ours"),
        ("project", "ours / one"),
    ]
    assert policy.max_media == 3
    assert policy.levels[1].urls is None
    assert [rule.folder for rule in policy.levels[2].folders or ()] == ["/srv/a"]

    changes.add(MediaLimit(max_media=8))
    changes.add(MediaLimit(organization=project.organization, project=project, max_media=5))
    assert read().policy_of(project.organization_id, project.pk).max_media == 3
    assert read().policy_of(None, None).max_media == 8


# -- Narrowing

HOSTS = ["a.example.org", "b.example.org", "a.b.example.org", "example.org", "other.example"]
PATTERNS = [*HOSTS, "*.example.org", "*.b.example.org"]
RULES = st.builds(
    MediaRule,
    id=st.integers(1, 99),
    host=st.sampled_from(PATTERNS),
    schemes=st.sampled_from([["https"], ["http"], ["http", "https"]]),
    ports=st.sampled_from([[], [443], [8443], [80, 8443]]),
    is_active=st.booleans(),
)
FOLDERS = st.builds(
    MediaFolder,
    id=st.integers(1, 99),
    folder=st.sampled_from(["/srv", "/srv/a", "/srv/b"]),
    is_active=st.booleans(),
)
LIMITS = st.builds(MediaLimit, max_media=st.integers(0, 5))
LEVELS = st.builds(
    level_of,
    st.just("organization"),
    st.just("ours"),
    st.none() | st.lists(RULES, min_size=1, max_size=4),
    st.none() | st.lists(FOLDERS, min_size=1, max_size=3),
    st.none() | st.lists(LIMITS, min_size=1, max_size=1),
)
URLS = [
    (scheme, host, port)
    for scheme in ("http", "https")
    for host in HOSTS
    for port in (80, 443, 8443)
]


@given(platform=LEVELS, organization=LEVELS, project=LEVELS)
def test_an_organisation_and_a_project_only_narrow(
    platform: Level, organization: Level, project: Level
) -> None:
    policies = MediaPolicies({(0, 0): platform, (1, 0): organization, (1, 2): project})

    wide, narrower, narrowest = (
        policies.policy_of(*caller) for caller in ((None, None), (1, 9), (1, 2))
    )

    for scheme, host, port in URLS:
        allowed = [allows(each, host, scheme, port) for each in (wide, narrower, narrowest)]
        assert allowed == sorted(allowed, reverse=True)
    assert _num(narrowest) <= _num(narrower) <= _num(wide)
    assert wide.levels[0] == narrower.levels[0] == narrowest.levels[0]


def _num(policy: MediaPolicy) -> float:
    return float("inf") if policy.max_media is None else policy.max_media
