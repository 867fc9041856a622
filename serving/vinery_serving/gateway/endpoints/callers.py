"""Authenticates callers, finds permitted models, and fetches media. Refusals become API errors.

A client sends its key as `Authorization: Bearer KEY`. Azure's clients send it as `api-key`, and
Anthropic's as `x-api-key`. These count only without a bearer token, so that a request has one key.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from typing import Final
from urllib.parse import quote

from vinery_accounts.base.errors import KeyRefused, NotAllowed
from vinery_accounts.keys.table import ANONYMOUS, Caller, KeyTable
from vinery_accounts.models import Scope as KeyScope
from vinery_accounts.outbound.client import lookups_of
from vinery_serving.core.errors import InvalidKey, InvalidRequest, NotPermitted
from vinery_serving.core.media import InlineSource, MediaPart, MediaUsage, PathSource, UrlSource
from vinery_serving.core.tasks import ALL_TASKS, Endpoint, Task
from vinery_serving.gateway.endpoints.edge import OWN_HEADERS, Scope
from vinery_serving.gateway.engines.directory import Engine, LocalDirectory
from vinery_serving.gateway.engines.meter import Meter
from vinery_serving.gateway.engines.models import alias_of
from vinery_serving.gateway.state.runtime import Runtime
from vinery_serving.media.fetching import Wanted
from vinery_serving.media.rules import MediaDenied, MediaPolicy

# Printable ASCII, except the percent sign that encodes other characters.
_UNQUOTED: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_BEARER: Final = b"bearer "


def authorization_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """Return the value of the `Authorization` header, or such a value for the key of another
    header. The names of `headers` are in lower case, and the first header of a name counts."""
    found = dict(reversed(list(headers)))
    authorization = found.get(b"authorization")
    if authorization is not None and _has_token(authorization):
        return authorization
    keys = (found.get(name, b"").strip() for name in (b"api-key", b"x-api-key"))
    key = next((key for key in keys if key), None)
    return authorization if key is None else b"Bearer " + key


def _has_token(authorization: bytes) -> bool:
    is_bearer = authorization[: len(_BEARER)].lower() == _BEARER
    return is_bearer and bool(authorization[len(_BEARER) :].strip())


def authenticate(keys: KeyTable | None, scope: Scope) -> Caller:
    """Return the caller of a request, anonymous without `keys`, and add the caller's organisation
    to the headers of the answer. Raises `InvalidKey`."""
    if keys is None:
        return ANONYMOUS
    try:
        caller = keys.authenticate(authorization_of(scope["headers"]))
    except KeyRefused as refused:
        raise InvalidKey(refused.message) from None
    scope[OWN_HEADERS][:] = organization_headers(caller.organization_name)
    return caller


def permitted_caller(
    runtime: Runtime, scope: Scope, needed: KeyScope = KeyScope.INFERENCE
) -> Caller:
    caller = authenticate(runtime.required_keys, scope)
    check_grants(caller, needed, address_of(scope))
    return caller


def organization_headers(name: str) -> tuple[tuple[bytes, bytes], ...]:
    """OpenAI's header for the organisation, percent-encoded if necessary; none if it is blank."""
    value = quote(name.strip(), safe=_UNQUOTED)
    return ((b"openai-organization", value.encode()),) if value else ()


@contextmanager
def grant_errors() -> Iterator[None]:
    try:
        yield
    except NotAllowed as refused:
        raise NotPermitted(refused.message, param=refused.param, code=refused.code) from None


def check_grants(
    caller: Caller, needed: KeyScope, address: str | None, endpoint: Endpoint | None = None
) -> None:
    """Every endpoint that needs a key asks this. `USAGE` reads amounts of use; everything else of
    this API, lists of models too, is `INFERENCE`. A key reads and changes what is stored only if it
    may call the `endpoint` that stores it. Raises `NotPermitted`."""
    with grant_errors():
        caller.grants.check_scope(needed)
        caller.grants.check_address(address)
        if endpoint is not None:
            caller.grants.check_endpoint(endpoint)


def permitted_engine(
    directory: LocalDirectory, caller: Caller, name: str | None, tasks: Set[Task] = ALL_TASKS
) -> Engine:
    """Return the engine of a model that does one of `tasks`, or of a target of an alias. Raises
    `ServingError`, also for a key that may use neither the name nor the model."""
    grants = caller.grants
    name = directory.named(name, tasks, caller.project_id)
    engine = directory.find(name, grants.allows_model, tasks, caller.project_id)
    model = engine.entry.name
    alias = None if name == model else alias_of(name, directory.aliases)
    with grant_errors():
        grants.check_model(model if grants.allows_model(model) else alias or model)
    return engine


def client_of(keys: KeyTable | None, scope: Scope) -> Hashable:
    """Return the client of a request, for turns: the id of the key, or the address."""
    with suppress(KeyRefused):
        if keys is not None:
            return keys.authenticate(authorization_of(scope["headers"])).key_id
    return address_of(scope)


def address_of(scope: Scope) -> str | None:
    """Return the client's address. Behind a proxy, the server takes it from the proxy's header."""
    client = scope.get("client")
    return client[0] if client else None


async def fetch_media(
    runtime: Runtime,
    caller: Caller,
    media: Sequence[MediaPart],
    meter: Meter,
    cover: Callable[[int], None],
) -> Mapping[int, InlineSource]:
    """Return the files that did not come with a request, by the index of their part. `cover` claims
    memory for so many bytes. Raises `ServingError`."""
    policy = runtime.media_policies.policy_of(caller.organization_id, caller.project_id)
    _check_number(media, policy)
    wanted = {
        index: Wanted(part.source, part.param)
        for index, part in enumerate(media)
        if isinstance(part.source, UrlSource | PathSource)
    }
    if not wanted:
        return {}
    begun_at_s = time.monotonic()
    try:
        with lookups_of((caller.organization_id, caller.organization_id or caller.key_id)):
            fetched = await runtime.media.fetch_all(
                tuple(wanted.values()), policy, key=caller.key_id, project=caller.project_id
            )
    except MediaDenied as denied:
        runtime.media_denials.put(denied.denial, caller.organization_id, caller.project_id)
        raise
    finally:
        meter.media += MediaUsage(fetch_s=time.monotonic() - begun_at_s)
    cover(sum(len(each.data) for each in fetched))
    files = (InlineSource(each.data, each.max_pixels) for each in fetched)
    return dict(zip(wanted, files, strict=True))


def _check_number(media: Sequence[MediaPart], policy: MediaPolicy) -> None:
    most = policy.max_media
    if most is not None and len(media) > most:
        raise InvalidRequest(
            f"`{media[most].param}` is one too many: the media rules allow {most} pictures, videos "
            "and files in a request. Send fewer, or ask the administrator to allow more.",
            param=media[most].param,
        )
