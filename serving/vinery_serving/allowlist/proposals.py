"""Why media were refused, in words, and the rule that would allow them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from vinery_accounts.outbound.addresses import is_within, read_networks
from vinery_accounts.services.access import Access, Action
from vinery_serving.allowlist.models import MediaDenial, MediaFolder, MediaRule
from vinery_serving.media.denials import DenialReason
from vinery_serving.media.permits import is_type_allowed
from vinery_serving.media.policy import DEFAULT_PORTS, MediaPolicy

_MIB: Final = 1024 * 1024
# The rule allows this many times what it allowed.
_FACTOR: Final = 2


@dataclass(frozen=True, slots=True)
class Proposal:
    """A new row, or other values of a stored one."""

    row: MediaRule | MediaFolder
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_new(self) -> bool:
        return self.row.pk is None

    def may_be_stored_by(self, access: Access) -> bool:
        return access.may(Action.MANAGE, self.row)


def propose(denial: MediaDenial) -> Proposal | None:
    """Return what would allow the media; None if no rule of Vinery can."""
    if denial.reason == DenialReason.NO_RULE:
        return _folder(denial) if denial.folder else _host(denial)
    row = _rule_of(denial)
    change = _CHANGES.get(denial.reason)
    if row is None or change is None:
        return None
    try:
        values = change(row, denial.detail)
    except (AttributeError, ValueError):
        return None
    return Proposal(row, values) if values else None


def _rule_of(denial: MediaDenial) -> Any:
    """Return the rule or folder whose value refused it; None if it is gone."""
    table: Any = MediaFolder if denial.folder else MediaRule
    return table.objects.filter(pk=denial.rule_id or 0).first()


def _scope_of(denial: MediaDenial) -> dict[str, int]:
    """Return the columns of the scope whose rules refused it."""
    match denial.level:
        case "organization":
            return {"organization_id": denial.organization_id}
        case "project":
            return {"organization_id": denial.organization_id, "project_id": denial.project_id}
    return {}


def _stored(table: Any, scope: Mapping[str, int], **values: str) -> Any:
    whose = {"organization_id": None, "project_id": None, **scope}
    empty = {f"{name}__isnull": True for name, value in whose.items() if value is None}
    given = {name: value for name, value in whose.items() if value is not None}
    return table.objects.filter(**empty, **given, **values).first()


def _host(denial: MediaDenial) -> Proposal:
    scope = _scope_of(denial)
    row = _stored(MediaRule, scope, host=denial.host)
    is_usual = denial.port == DEFAULT_PORTS.get(denial.scheme)
    if row is None:
        ports = [] if is_usual else [denial.port]
        values = {"host": denial.host, "schemes": [denial.scheme], "ports": ports}
        return Proposal(MediaRule(**scope, **values), values)
    known = row.ports or [DEFAULT_PORTS[scheme] for scheme in row.schemes]
    ports = [] if is_usual and not row.ports else sorted({*known, denial.port})
    schemes = sorted({*row.schemes, denial.scheme})
    return Proposal(row, {"schemes": schemes, "ports": ports, "is_active": True})


def _folder(denial: MediaDenial) -> Proposal:
    scope = _scope_of(denial)
    row = _stored(MediaFolder, scope, folder=denial.folder)
    if row is not None:
        return Proposal(row, {"is_active": True})
    return Proposal(MediaFolder(**scope, folder=denial.folder), {"folder": denial.folder})


# -- Values of a stored rule that would allow what it refused


def _network(row: MediaRule, address: str) -> dict[str, Any]:
    return {"networks": [*row.networks, address]} if address else {}


def _content_type(row: MediaRule, name: str) -> dict[str, Any]:
    kind = _kind(name)
    return {"content_types": [*row.content_types, kind]} if kind and row.content_types else {}


def _kind(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _larger(column: str) -> Callable[[Any, str], dict[str, Any]]:
    def change(row: Any, _: str) -> dict[str, Any]:
        return {column: getattr(row, column) * _FACTOR}

    return change


_NUMBERS: Final[Mapping[str, str]] = {
    DenialReason.MAX_BYTES: "max_bytes",
    DenialReason.MAX_PIXELS: "max_pixels",
    DenialReason.MAX_REDIRECTS: "max_redirects",
    DenialReason.TIMEOUT: "timeout_s",
}
"""The columns whose numbers refuse."""

_CHANGES: Final[Mapping[str, Callable[[Any, str], dict[str, Any]]]] = {
    DenialReason.ADDRESS: _network,
    DenialReason.CONTENT_TYPE: _content_type,
    **{reason: _larger(column) for reason, column in _NUMBERS.items()},
    DenialReason.MAX_REDIRECTS: lambda row, _: {"max_redirects": row.max_redirects + 1},
}


# -- Words


def reason_text(denial: MediaDenial, *, with_address: bool = True) -> str:
    """Return a sentence with the reason. Addresses are for administrators alone."""
    detail = denial.detail
    match denial.reason:
        case DenialReason.NO_RULE:
            return f"No rule of {_whose(denial)} allows it."
        case DenialReason.ADDRESS:
            return f"The address {(with_address and detail) or 'of the host'} is not public."
        case DenialReason.CONTENT_TYPE:
            return f"The content type {detail or 'of the file'} is not allowed."
        case DenialReason.MAX_BYTES:
            return "The file has more bytes than are allowed."
        case DenialReason.MAX_PIXELS:
            return "The picture has more pixels than are allowed."
        case DenialReason.MAX_REDIRECTS:
            return "The host redirects more often than is allowed."
    return "The host did not answer in the time that is allowed."


def _whose(denial: MediaDenial) -> str:
    match denial.level:
        case "organization":
            return f"the organisation {denial.organization_name or denial.organization_id}"
        case "project":
            return f"the project {denial.project_name or denial.project_id}"
    return "the platform"


def is_allowed_now(denial: MediaDenial, policy: MediaPolicy) -> bool:
    """Return whether rules that were stored since allow the URL, the folder or the value that was
    refused last."""
    if denial.reason != DenialReason.NO_RULE:
        row = _rule_of(denial)
        return row is not None and row.is_active and _allows_value(row, denial)
    if denial.folder:
        levels = [level.folders for level in policy.levels if level.folders is not None]
        return all(any(_has(each.folder, denial.folder) for each in rules) for rules in levels)
    found = policy.url_rules(denial.scheme, denial.host, denial.port)
    return all(rule is not None for _, rule in found)


def _allows_value(row: Any, denial: MediaDenial) -> bool:
    """Return whether the rule allows the address or type of a refusal, or more than the number
    that refused it."""
    detail = denial.detail
    try:
        match denial.reason:
            case DenialReason.ADDRESS:
                return is_within(detail, read_networks(row.networks))
            case DenialReason.CONTENT_TYPE:
                return is_type_allowed(_kind(detail), tuple(row.content_types))
        return bool(getattr(row, _NUMBERS[denial.reason]) > float(detail))
    except ValueError:  # a refusal without its value
        return False


def _has(folder: str, path: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
