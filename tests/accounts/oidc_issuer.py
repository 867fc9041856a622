"""A small, real OpenID Connect issuer on loopback.

The issuer speaks the authorization code flow with PKCE over HTTP: discovery, key set,
authorization, tokens and userinfo, with the checks of a real issuer. It can send false values. The
authorization page signs in every browser as the user of `claims`.
"""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from vinery_accounts.signin.issuer import Issuer

CLIENT_ID = "vinery"
CLIENT_SECRET = "the client's secret"
CALLBACK = "http://testserver/accounts/oidc/login/callback/"


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def _own_key() -> rsa.RSAPrivateKey:
    """One key for all issuers: a new key takes a tenth of a second."""
    return new_key()


@dataclass
class TestIssuer:
    """The state of the issuer. Each `wrong_` field changes one value that the issuer sends."""

    __test__ = False

    url: str = ""
    claims: dict[str, Any] = field(default_factory=lambda: {"sub": "1234"})
    userinfo: dict[str, Any] = field(default_factory=dict)
    key: rsa.RSAPrivateKey = field(default_factory=_own_key)
    signing_key: Any = None
    algorithm: str = "RS256"
    wrong_in_discovery: dict[str, Any] = field(default_factory=dict)
    wrong_in_token: dict[str, Any] = field(default_factory=dict)
    leaves_out_token: bool = False
    is_down: bool = False
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[dict[str, str]] = field(default_factory=list)
    django_settings: Any = None

    def allow(self, **more: Any) -> None:
        """Let Vinery use this issuer with these permissions."""
        self.django_settings.VINERY_OIDC = self.settings(**more)

    def settings(self, **more: Any) -> Issuer:
        return Issuer(self.url, CLIENT_ID, CLIENT_SECRET, **more)

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "userinfo_endpoint": f"{self.url}/userinfo",
            "jwks_uri": f"{self.url}/keys",
        } | self.wrong_in_discovery

    def keys(self) -> dict[str, Any]:
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {"keys": [public | {"kid": "one", "use": "sig", "alg": "RS256"}]}

    def authorize(self, query: dict[str, str]) -> str:
        """Grant the authorization, and return the URL to which the browser is redirected."""
        assert query["client_id"] == CLIENT_ID
        assert query["redirect_uri"] == CALLBACK
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert "openid" in query["scope"].split()
        self.asked.append(query)
        code = secrets.token_urlsafe(12)
        self.codes[code] = query
        return f"{CALLBACK}?{urlencode({'code': code, 'state': query['state']})}"

    def tokens(self, form: dict[str, str], authorization: str) -> dict[str, Any] | None:
        """Return None if the client, the code or the verifier is wrong."""
        user, _, password = (
            base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        )
        query = self.codes.pop(form["code"], None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            (unquote(user), unquote(password)) != (CLIENT_ID, CLIENT_SECRET)
            or query is None
            or query["code_challenge"] != challenge
            or form["redirect_uri"] != CALLBACK
        ):
            return None
        tokens = {"access_token": "access", "token_type": "Bearer", "expires_in": 60}
        return tokens if self.leaves_out_token else tokens | {"id_token": self.id_token(query)}

    def id_token(self, query: dict[str, str]) -> str:
        now = int(time.time())
        facts = {"iss": self.url, "aud": CLIENT_ID, "iat": now, "exp": now + 60}
        claims = facts | self.claims | {"nonce": query["nonce"]} | self.wrong_in_token
        claims = {name: value for name, value in claims.items() if value is not None}
        key = self.key if self.signing_key is None else self.signing_key
        return jwt.encode(claims, key, algorithm=self.algorithm, headers={"kid": "one"})


@contextmanager
def running_issuer() -> Iterator[TestIssuer]:
    """Yield an issuer that answers until the block ends."""
    issuer = TestIssuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if issuer.is_down:
                self.send_error(503)
            elif parts.path == "/.well-known/openid-configuration":
                self._send(issuer.discovery())
            elif parts.path == "/keys":
                self._send(issuer.keys())
            elif parts.path == "/authorize":
                self.send_response(302)
                self.send_header("location", issuer.authorize(query))
                self.end_headers()
            elif parts.path == "/userinfo":
                assert self.headers["authorization"] == "Bearer access"
                self._send({"sub": issuer.claims["sub"]} | issuer.userinfo)
            else:
                self.send_error(404)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            tokens = issuer.tokens(form, self.headers.get("authorization", ""))
            self._send(tokens or {"error": "invalid_grant"}, 200 if tokens else 400)

        def _send(self, body: dict[str, Any], status: int = 200) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
