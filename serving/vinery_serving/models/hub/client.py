"""The client of a hub: lists, small files, searches, and files from any byte on.

`huggingface_hub` sends the requests, so HF_ENDPOINT and HF_TOKEN hold. Lists and small JSON files
are read first, so that a model is judged before its weights are fetched.
"""

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import huggingface_hub

from vinery_accounts.outbound.urls import UrlRefused, read_url
from vinery_serving.models.hub.errors import PullFailed, explained
from vinery_serving.models.hub.pull import Stream, WrongContent
from vinery_serving.models.hub.repository import Repository, RepositoryFile, check_name, check_path

# The log lines have URLs, and URLs of storage are signed.
logging.getLogger("httpx2").setLevel(logging.WARNING)

PUBLIC_HUB: Final = "https://huggingface.co"
_TEMPLATE: Final = "chat_template.jinja"
_MAX_JSON_BYTES: Final = 4 << 20
_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Hub:
    """A hub. `huggingface_hub` finds the token: HF_TOKEN, or that of its login."""

    endpoint: str = PUBLIC_HUB  # without a slash at its end

    @classmethod
    def of_environment(cls, endpoint: str | None = None) -> Self:
        """Return the hub at `endpoint` or HF_ENDPOINT. Raises `PullFailed` for no URL of HTTP."""
        url = (endpoint or os.environ.get("HF_ENDPOINT") or PUBLIC_HUB).rstrip("/")
        if "@" in url.partition("//")[2].partition("/")[0]:
            raise PullFailed("Leave the password out of HF_ENDPOINT. Set HF_TOKEN.")
        try:
            read_url(url)
        except UrlRefused as error:
            raise PullFailed(
                f"HF_ENDPOINT must be a URL such as {PUBLIC_HUB}, not {url!r}. {error}"
            ) from None
        return cls(url)

    def repository(self, name: str, revision: str | None = None) -> Repository:
        """Return a repository at the commit that a branch, tag or commit names; by default that of
        `main`. Raises `PullFailed`, and `HubUnavailable` if the hub does not answer."""
        check_name(name)
        api = _api_of(self)
        with explained(self.endpoint, name, revision or "main"):
            info = api.model_info(name, revision=revision, files_metadata=True, timeout=_TIMEOUT_S)
        if not isinstance(info.sha, str) or not re.fullmatch(r"[0-9a-f]{40}", info.sha):
            raise PullFailed(f"The hub names no commit of {name}.")
        licence = info.card_data.get("license") if info.card_data else None
        found = Repository(
            name=name,
            revision=revision or "main",
            commit=info.sha,
            files=_checked_files(info, name),
            licence=licence if isinstance(licence, str) else None,
            pipeline_tag=info.pipeline_tag,
        )
        tokenizer = {} if found.has(_TEMPLATE) else self.json_file(found, "tokenizer_config.json")
        template, listed = tokenizer.get("chat_template"), getattr(info, "gguf", None)
        architecture = listed.get("architecture") if isinstance(listed, dict) else None
        return replace(
            found,
            config=self.json_file(found, "config.json"),
            openvino_config=self.json_file(found, "openvino_config.json"),
            chat_template=template if isinstance(template, str) else None,
            gguf_architecture=architecture if isinstance(architecture, str) else None,
        )

    def json_file(self, repository: Repository, path: str) -> Mapping[str, Any]:
        """Return the JSON object in a file; empty if the repository has none. Raises `PullFailed`
        for another content, and `HubUnavailable`."""
        file, content = repository.file(path), bytearray()
        if file is None:
            return {}
        if file.size_bytes > _MAX_JSON_BYTES:
            raise PullFailed(f"{path} of {repository.name} is too large for its purpose.")
        with self.explained(repository), self.get(repository, path, {}) as response:
            huggingface_hub.utils.hf_raise_for_status(response)
            for part in response.iter_bytes():
                content += part
                if len(content) > _MAX_JSON_BYTES:
                    raise PullFailed(f"{path} of {repository.name} has another size.")
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise PullFailed(f"{path} of {repository.name} is no JSON object.")
        return value

    def get(
        self,
        repository: Repository,
        path: str,
        headers: Mapping[str, str],
        timeout_s: float = _TIMEOUT_S,
    ) -> AbstractContextManager[Any]:
        """Begin to fetch a file at the repository's commit. The token goes to no other server than
        the hub's, also where the hub redirects."""
        from vinery_serving.models.hub.web import opened  # the clients of HTTP are large

        url = huggingface_hub.hf_hub_url(
            repository.name, path, revision=repository.commit, endpoint=self.endpoint
        )
        own = huggingface_hub.utils.build_hf_headers()
        return opened(url, {**own, **headers}, timeout_s, hub=self.endpoint)

    @contextmanager
    def open(
        self, repository: Repository, file: RepositoryFile, start: int, stall_s: float
    ) -> Iterator[Stream]:
        """Begin to read a file, see `pull.Open`."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        sent = self.get(repository, file.path, headers, stall_s)
        with self.explained(repository), sent as response:
            yield stream_of(response, start, file.path)

    def explained(self, repository: Repository) -> AbstractContextManager[None]:
        return explained(self.endpoint, repository.name, repository.revision)


def _api_of(hub: Hub) -> Any:  # `HfApi`, whose module is large
    huggingface_hub.get_session().event_hooks["response"] = [_check_redirect]
    return huggingface_hub.HfApi(endpoint=hub.endpoint)


def _check_redirect(response: Any) -> None:
    """Raises `PullFailed` for a redirect to another server. For files see `web`."""
    if response.has_redirect_location:
        from vinery_serving.models.hub.web import following

        url = read_url(str(response.request.url))
        target = following(url, response.headers["location"])
        if target.origin != url.origin and not (target.is_tls and target.host == url.host):
            raise PullFailed(
                f"{url.host} redirects to {target.origin}. Set HF_ENDPOINT to the hub."
            )


def _checked_files(info: Any, name: str) -> tuple[RepositoryFile, ...]:
    """Raises `PullFailed` for a list that no hub should send: paths decide what is written."""
    listed = info.siblings or []
    if len(listed) > 10_000:
        raise PullFailed(f"{name} has {len(listed):,} files: that is no model.")
    files = []
    for each in listed:
        path, sha256 = each.rfilename, getattr(each.lfs, "sha256", None)
        check_path(path, name)
        if not isinstance(each.size, int) or each.size < 0:
            raise PullFailed(f"The hub lists no size of {path} in {name}.")
        if sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", str(sha256)):
            raise PullFailed(f"The hub lists a broken digest of {path} in {name}.")
        files.append(RepositoryFile(path, each.size, sha256, None if sha256 else each.blob_id))
    if len({each.path.casefold() for each in files}) < len(files):
        raise PullFailed(f"{name} has two files whose names differ in upper and lower case only.")
    return tuple(files)


_OPENVINO: Final = "openvino"  # the tag of models in OpenVINO's format


@dataclass(frozen=True, slots=True)
class Found:
    name: str
    downloads: int  # in the last month
    tag: str  # the hub's name of the task; empty: unknown
    is_openvino: bool  # whether the hub lists OpenVINO's format


def search(hub: Hub, text: str, *, only_openvino: bool = True) -> list[Found]:
    """Return the most downloaded ones that match. Raises `PullFailed` and `HubUnavailable`."""
    wanted = _OPENVINO if only_openvino else None
    with explained(hub.endpoint, text, "main"):
        listed = _api_of(hub).list_models(search=text, filter=wanted, sort="downloads", limit=30)
        try:
            return [
                Found(
                    name=str(info.id),
                    downloads=int(info.downloads or 0),
                    tag=str(info.pipeline_tag or ""),
                    is_openvino=_OPENVINO in (info.tags or ()),
                )
                for info in listed
            ]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise PullFailed("The hub answers with what is no list of models.") from None


def stream_of(response: Any, start: int, path: str) -> Stream:
    """Return the stream of a response of HTTP to a request from `start` on. Raises `WrongContent`
    for a response that begins elsewhere, and the errors of `huggingface_hub`."""
    if response.status_code == 416:
        raise WrongContent(f"{path} is shorter than listed.")
    huggingface_hub.utils.hf_raise_for_status(response)
    first = 0
    if response.status_code == 206:
        header = response.headers.get("content-range", "")
        found = re.fullmatch(r"bytes (\d+)-\d+/(?:\d+|\*)", header)
        if found is None or int(found[1]) > start:
            raise WrongContent(f"The response for {path} begins elsewhere than was asked for.")
        first = int(found[1])
    return Stream(first, response.iter_raw())
