"""A local S3 store with moto's server, which checks credentials as AWS does.

    with ObjectStore({"models": {"m.zip": b"..."}}) as store:
        store.cuts = [1000]  # the next download ends after 1,000 bytes

`requests` keeps every request, so that a test sees which bytes were fetched again.
"""

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Self

import boto3
from moto import settings
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

REGION: Final = "us-east-1"
_ALL: Final = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}


class _Silent(WSGIRequestHandler):
    def log(self, *_: Any, **__: Any) -> None:
        pass


class ObjectStore:
    """The server, on 127.0.0.1, with one user who may read everything."""

    def __init__(self, buckets: Mapping[str, Mapping[str, bytes]]) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server(
            "127.0.0.1", 0, self._answer, threaded=True, request_handler=_Silent
        )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self.requests: list[tuple[str, str, str]] = []  # method, path, range
        self.cuts: list[int] = []  # bytes of each of the next downloads
        self.stalls: list[threading.Event] = []  # each of the next downloads waits for one
        self.status = 0  # the answer to all downloads, if not 0
        self._buckets = buckets

    def __enter__(self) -> Self:
        self._thread.start()
        for bucket, objects in self._buckets.items():
            self._aws("s3").create_bucket(Bucket=bucket)
            for name, content in objects.items():
                self.put(bucket, name, content)
        iam = self._aws("iam")
        iam.create_user(UserName="reader")
        policy = json.dumps({"Version": "2012-10-17", "Statement": [_ALL]})
        iam.put_user_policy(UserName="reader", PolicyName="all", PolicyDocument=policy)
        key = iam.create_access_key(UserName="reader")["AccessKey"]
        self.key_id, self.secret = key["AccessKeyId"], key["SecretAccessKey"]
        settings.INITIAL_NO_AUTH_ACTION_COUNT = 0  # from here on each request needs a key
        return self

    def __exit__(self, *_: object) -> None:
        settings.INITIAL_NO_AUTH_ACTION_COUNT = float("inf")
        self._server.shutdown()
        self._server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """AWS's variables for the user."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": REGION,
        }

    def put(self, bucket: str, name: str, content: bytes) -> None:
        self._aws("s3").put_object(Bucket=bucket, Key=name, Body=content)

    def first_bytes(self, name: str) -> list[str]:
        """The first byte of each download of an object."""
        asked = [each for each in self.requests if each[0] == "GET" and each[1].endswith(name)]
        return [each[2].removeprefix("bytes=").partition("-")[0] for each in asked]

    def _aws(self, service: str) -> Any:
        key = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
        if hasattr(self, "secret"):
            key = {"aws_access_key_id": self.key_id, "aws_secret_access_key": self.secret}
        return boto3.client(service, endpoint_url=self.endpoint, region_name=REGION, **key)

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.requests.append((method, path, environ.get("HTTP_RANGE", "")))
        if method != "GET":
            return self._moto(environ, start_response)
        if self.status:
            start_response(f"{self.status} Fault", [("Content-Length", "0")])
            return []
        body: Iterable[bytes] = self._moto(environ, start_response)
        if self.stalls:
            return _held(body, self.stalls.pop(0))
        return _cut(body, self.cuts.pop(0)) if self.cuts else body


def _cut(body: Iterable[bytes], num_bytes: int) -> Iterator[bytes]:
    yield b"".join(body)[:num_bytes]
    raise ConnectionAbortedError("as the test wants")


def _held(body: Iterable[bytes], until: threading.Event) -> Iterator[bytes]:
    until.wait(60)
    yield from body
