"""`vinery project`, `user`, `key`, `limit`, `weight`, `currency` and `admin`: who may use how much,
and what an administrator has lost."""

import argparse
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from vinery_accounts.access import audit, changes
from vinery_accounts.access.access import Access, Action
from vinery_accounts.base.limit_table import Metric
from vinery_accounts.base.money import MILLION, whole
from vinery_accounts.models import ApiKey, Organization, Project, Role, User
from vinery_accounts.resources.base import EVERYTHING
from vinery_accounts.resources.keys import KEYS
from vinery_accounts.resources.limits import CURRENCIES, LIMITS, MODEL_WEIGHTS, QUOTAS
from vinery_accounts.resources.organizations import PROJECTS
from vinery_accounts.resources.users import MEMBERSHIPS, USERS
from vinery_platform.cli import resource, shape

# -- Projects


def add_project(parser: argparse.ArgumentParser) -> None:
    redactions = resource.Option("--redact", metavar="RULE", clear="--no-redact")
    options = {
        "capture_redactions": redactions,
        "hashes_end_users": resource.Option("--hashes-end-users"),
    }
    one = resource.add_resource(parser, PROJECTS, find=resource.project_named, options=options)
    make = shape.add_command(one.actions, "create", create_project)
    make.add_argument("name", metavar="NAME", help="its name, unique in its organisation")
    text = "its organisation (default: the first one)"
    make.add_argument("--organization", metavar="NAME", help=text)


def create_project(arguments: argparse.Namespace) -> str:
    """Create a project."""
    name = arguments.organization
    organization = (
        resource.organization_named(name) if name else changes.first_project().organization
    )
    values = {"organization": organization, "name": arguments.name}
    return f"{PROJECTS.create(EVERYTHING, values)} is created."


# -- Users

_ROLES: Final = tuple(reversed(Role.values))
_ADMINISTRATOR: Final[dict[str, Any]] = {"is_superuser": True, "is_staff": True}


def add_user(parser: argparse.ArgumentParser) -> None:
    one = resource.add_resource(
        parser, USERS, find=resource.user_named, without=("change", "password")
    )
    _add_create_user(one.actions)
    one.add("password", password)
    text = "whether they may do everything on this platform, in the admin too"
    one.add_change(change_user).add_argument(
        "--administrator", action=argparse.BooleanOptionalAction, help=text
    )
    role = one.add("role", set_role)
    role.add_argument("role", choices=(*_ROLES, "none"), help="none takes the role")
    _add_scope(role, required=True)


def _add_create_user(actions: shape.Commands) -> None:
    make = shape.add_command(actions, "create", create_user)
    make.add_argument("name", metavar="NAME", help="what they sign in with")
    resource.add_fields(
        make, resource.fields_of(USERS), {"email": resource.Option(help="their e-mail address")}
    )
    kind = make.add_mutually_exclusive_group()
    shape.add_switch(kind, "--service", "a program's account, which owns keys and cannot sign in")
    text = "a user who may do everything on this platform, in the admin too"
    shape.add_switch(kind, "--administrator", text)
    shape.add_switch(make, "--no-password", "for a user who signs in elsewhere; nothing is printed")
    make.add_argument("--role", choices=_ROLES, help="the role (default: member)")
    _add_scope(make, required=False)


def _add_scope(parser: argparse.ArgumentParser, *, required: bool) -> None:
    scope = parser.add_mutually_exclusive_group(required=required)
    scope.add_argument("--organization", metavar="NAME", help="a role in the whole organisation")
    text = "a role in this project: PROJECT or ORGANISATION/PROJECT"
    scope.add_argument("--project", metavar="NAME", help=text)


def create_user(arguments: argparse.Namespace) -> str:
    """Create a user. A person gets a random password, which is printed once. Without --organization
    or --project the user has no role, and can have no keys until `vinery user role` gives them
    one."""
    has_password = not (arguments.service or arguments.no_password)
    new_password = changes.new_password() if has_password else None
    scope = _role_scope(arguments)
    if arguments.role and scope is None:
        raise shape.Failure("Name where they have this role, with --organization or --project.")
    values = {
        **resource.values_of(arguments),
        "username": arguments.name,
        "password": new_password,
        "is_service": arguments.service,
        "organization": scope,
        "role": arguments.role or Role.MEMBER,
    }
    with audit.writing():
        user = USERS.create(EVERYTHING, values)
        if arguments.administrator:
            changes.change(user, **_ADMINISTRATOR)
    if scope is None and not arguments.administrator:
        shape.print_note(f"{arguments.name} has no role anywhere yet. See: vinery user role --help")
    if new_password is None:
        return f"{arguments.name} is created."
    shape.print_note(f"The password of {arguments.name}. It is not shown again:")
    return new_password


def change_user(user: User, arguments: argparse.Namespace) -> str:
    values = resource.values_of(arguments)
    if arguments.administrator is not None:
        values |= dict.fromkeys(_ADMINISTRATOR, arguments.administrator)
    if arguments.administrator and user.is_service:
        raise shape.Failure(f"{user} is a service account. Administrators are people.")
    USERS.change(EVERYTHING, user, values)
    return f"{user} is changed." if values else f"{user} is unchanged."


def password(user: User, _: argparse.Namespace) -> str:
    """Give a user a new random password, and print it once."""
    new = USERS.act(EVERYTHING, USERS.action("password"), user)
    shape.print_note(f"The new password of {user}. It is not shown again:")
    return str(new["password"])


def set_role(user: User, arguments: argparse.Namespace) -> str:
    """Give a user a role in an organisation or in one project, or take it."""
    scope = _role_scope(arguments)
    assert scope is not None
    if arguments.role != "none":
        return f"{changes.set_role(user, scope, arguments.role)}."
    known = changes.known_membership(user, scope)
    if known is None:
        raise shape.Failure(f"{user} has no role in {scope}.")
    MEMBERSHIPS.remove(EVERYTHING, known)
    return f"{user} no longer has a role in {scope}."


def _role_scope(arguments: argparse.Namespace) -> Organization | Project | None:
    if arguments.organization:
        return resource.organization_named(arguments.organization)
    return resource.project_named(arguments.project) if arguments.project else None


# -- Keys


def _days_or_never(text: str) -> int | None:
    if text == "never":
        return None
    length = shape.period(text)
    if length % timedelta(days=1):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days, like 30d or 4w")
    return length.days


def _expiry(text: str) -> datetime | None:
    return None if text == "never" else datetime.now(UTC) + shape.period(text)


_KEY_OPTIONS: Final = {
    "scopes": resource.Option("--scope"),
    "models": resource.Option("--model", clear="--any-model"),
    "endpoints": resource.Option("--endpoint", clear="--any-endpoint"),
    "networks": resource.Option("--network", clear="--any-network"),
    "expires_at": resource.Option(
        "--expires-in", _expiry, "PERIOD", "from now, like 30m, 12h, 30d or 4w, or never"
    ),
    "rotate_every_days": resource.Option(
        "--rotate-every",
        _days_or_never,
        "PERIOD",
        "the rotation interval, from the creation of the key, like 90d, or never",
    ),
    "rotation_grace_days": resource.Option(
        "--rotation-grace",
        _days_or_never,
        "PERIOD",
        "how long after a missed rotation the key expires, like 7d, or never",
    ),
}


def add_key(parser: argparse.ArgumentParser) -> None:
    of_key = ("key", "ID_OR_HINT", "the id, or the hint, from `key list`")
    one = resource.add_resource(
        parser, KEYS, *of_key, find=resource.key_named, options=_KEY_OPTIONS
    )
    epilog = "An option for a list may be given several times."
    make = shape.add_command(one.actions, "create", create_key, epilog=epilog)
    name = resource.Option(help="what the key is for", is_required=True)
    fields = resource.fields_of(KEYS)
    resource.add_fields(make, fields, {**_KEY_OPTIONS, "name": name}, fields)
    make.add_argument("--user", help="the owner (default: the first administrator)")
    text = "PROJECT or ORGANISATION/PROJECT (default: the first of the owner's)"
    make.add_argument("--project", metavar="NAME", help=text)


def create_key(arguments: argparse.Namespace) -> str:
    """Create a key, and print it once."""
    name = arguments.user
    chosen = {"is_superuser": True} if name is None else {"username": name}
    owner = User.objects.filter(is_active=True, **chosen).order_by("pk").first()
    if owner is None:
        raise shape.Failure(f"There is no active user {name or 'who is an administrator'}.")
    with audit.writing():
        project = _project_for(owner, arguments.project)
        values = {**resource.values_of(arguments), "owner": owner, "project": project}
        new = KEYS.create(EVERYTHING, values)
    shape.print_note(f"The API key of {owner} for {project}. It is not shown again:")
    return new.secret


def _project_for(owner: User, name: str | None) -> Project:
    """Return the project of a new key. Raises `Failure` where its owner may have none."""
    # Read before `home_project`, which makes an administrator a member of their first project.
    access = Access.of(owner)
    project = resource.project_named(name) if name else changes.home_project(owner)
    if not access.may(Action.MANAGE, ApiKey(owner=owner, project=project)):
        raise shape.Failure(f"{owner} is not a member of {project}. See: vinery user role --help")
    return project


# -- Limits and weights


def _percents(text: str) -> list[int] | None:
    if text == "platform":
        return None
    try:
        return [] if text == "off" else sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither percentages like 50,80,100 nor off nor platform"
        ) from None


def _amount(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


_LIMIT_OPTIONS: Final = {
    "metric": resource.Option(help="what is counted", is_required=True),
    "window": resource.Option(
        help="the window; none is for concurrency, and for budgets of the cost or of weighted "
        "tokens (default: none)"
    ),
    "amount": resource.Option(
        parse=_amount,
        help="the maximum per window; of the cost in the currency, such as 12.50",
        is_required=True,
    ),
    "time_zone": resource.Option(),
    "week_start": resource.Option(),
    "is_shadow": resource.Option(help="refuse nothing, only count what would be refused"),
    "alert_at": resource.Option(
        "--alert-at",
        _percents,
        "PERCENTS",
        "percentages of a quota at which an alert is sent, such as 50,80,100; off, or platform "
        "for those of the platform",
    ),
}


def add_limit(parser: argparse.ArgumentParser) -> None:
    one = resource.add_resource(
        parser, LIMITS, "pk", "ID", "from `limit list`", without=("change",)
    )
    put_ = shape.add_command(
        one.actions,
        "set",
        set_limit,
        epilog="for example:  vinery limit set --project search --metric tokens --window day "
        "--amount 1000000 --time-zone Europe/Berlin",
    )
    scope = put_.add_mutually_exclusive_group(required=True)
    shape.add_switch(scope, "--platform", "for all users together")
    each = "for each end user of this project, who is named in the requests"
    scope.add_argument("--end-users-of", dest="end_user", metavar="PROJECT", help=each)
    for name in (*resource.FINDERS, "model"):
        metavar = "ID_OR_HINT" if name == "key" else "NAME"
        scope.add_argument(f"--{name}", metavar=metavar, help=f"for this {name}")
    resource.add_fields(put_, resource.fields_of(LIMITS), _LIMIT_OPTIONS)
    quotas = "Show what is left of quotas, and when they run out."
    resource.add_list(one.actions, QUOTAS, quotas, name="quotas")


def set_limit(arguments: argparse.Namespace) -> str:
    """Set a limit, or change the limit of the same scope, metric and window. Options that are not
    given keep their values. A request has to satisfy all limits that apply to it."""
    values = {"window": "none", **resource.values_of(arguments)}
    with shape.failing_on(ValueError):
        unit = MILLION if values["metric"] == Metric.COST else 1
        values["amount"] = whole(values["amount"], unit)
    kind = {**_scope(arguments), "metric": values.pop("metric"), "window": values.pop("window")}
    limit = resource.put(LIMITS, kind, values)
    (columns,) = LIMITS.extra_columns([limit])
    return f"Limit {limit.pk}: {limit.described_for(columns['whose'])}."


def _scope(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.platform:
        return {"scope": "platform", "scope_id": 0, "model": ""}
    if arguments.model:
        return {"scope": "model", "scope_id": 0, "model": arguments.model}
    finders = {**resource.FINDERS, "end_user": resource.project_named}
    scope = next(name for name in finders if getattr(arguments, name))
    return {"scope": scope, "scope_id": finders[scope](getattr(arguments, scope)).pk, "model": ""}


def add_weight(parser: argparse.ArgumentParser) -> None:
    name = ("model", "MODEL", "the name that clients use")
    one = resource.add_resource(parser, MODEL_WEIGHTS, *name, without=("change",))
    put_ = shape.add_command(one.actions, "set", set_weights)
    put_.add_argument(name[0], metavar=name[1], help=name[2])
    kinds = ("uncached", "cached", "output", "image")
    options = {
        kind: resource.Option(metavar="WEIGHT", help=f"of each {kind} token") for kind in kinds
    }
    resource.add_fields(put_, resource.fields_of(MODEL_WEIGHTS), options)


def set_weights(arguments: argparse.Namespace) -> str:
    """Set the weights of a model: with a currency, the prices of a million tokens. Weights that are
    not given keep their values, or are 1."""
    resource.put(MODEL_WEIGHTS, {"model": arguments.model}, resource.values_of(arguments))
    return f"The weights of {arguments.model} are set."


def add_currency(parser: argparse.ArgumentParser) -> None:
    code = ("code", "CODE", "three capital letters, such as EUR")
    one = resource.add_resource(parser, CURRENCIES, *code, without=("change",))
    put_ = shape.add_command(one.actions, "set", set_currency)
    put_.add_argument(code[0], metavar=code[1], help=code[2])


def set_currency(arguments: argparse.Namespace) -> str:
    """Set the currency, or another code for it. From then on the weights of models are their prices
    for a million tokens, and usage has a cost. Amounts of the past stay as they are."""
    resource.put(CURRENCIES, {}, {"code": arguments.code})
    return f"The currency is {arguments.code}. Set the prices of each model: vinery weight set"


# -- Administration


def add_admin(parser: argparse.ArgumentParser) -> None:
    actions = shape.subcommands(parser)
    reset = shape.add_command(actions, "reset-password", reset_password)
    text = "the administrator's name (default: %(default)s)"
    reset.add_argument("--user", default="admin", help=text)
    # The alias is the name in release 0.1.
    shape.add_command(actions, "reencrypt", reencrypt, aliases=["reseal"])


def reset_password(arguments: argparse.Namespace) -> str:
    """Give an administrator a new random password, and print it once."""
    admin = User.objects.filter(username=arguments.user, is_superuser=True).first()
    if admin is None:
        raise shape.Failure(f"There is no administrator {arguments.user}.")
    return password(admin, arguments)


def reencrypt(_: argparse.Namespace) -> int:
    """Encrypt the secrets of webhooks, second factors and jobs, and stored responses, conversations
    and chats with VINERY_SECRET_KEY, so that the keys in VINERY_SECRET_KEY_FALLBACKS can be
    removed. Run it again if it was interrupted: what is done stays done."""
    from vinery_accounts import reencryption  # no other command needs its imports

    result = reencryption.reencrypt()
    what = f"{result.num_done} secrets of webhooks, second factors and jobs, and stored texts,"
    print(f"{what} are encrypted with VINERY_SECRET_KEY.")
    if result.num_unreadable:
        raise shape.Failure(
            f"{result.num_unreadable} more are encrypted with a key that is not configured. Add "
            "it to VINERY_SECRET_KEY_FALLBACKS; if it is lost, rotate the webhooks without grace "
            "and turn the second factors off."
        )
    return 0
