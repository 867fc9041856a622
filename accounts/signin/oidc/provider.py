"""Allauth's provider for OpenID Connect with what it leaves out: a nonce, a token that must be
there and is always verified, and a discovery document that must be the issuer's own."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.models import SocialApp, SocialLogin, SocialToken
from allauth.socialaccount.providers.oauth2.client import OAuth2Client, OAuth2Error
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.http import HttpRequest
from django.urls import reverse
from requests import RequestException

from accounts.signin.account import public_url
from accounts.signin.oidc.issuer import PROVIDER_ID, Issuer
from accounts.signin.oidc.token import TokenRefused, verified_claims

# Of no use after the sign-in.
_PASSING_CLAIMS = frozenset({"nonce", "at_hash", "c_hash", "exp", "iat", "auth_time", "jti", "sid"})


def nonce_for(code_verifier: str) -> str:
    """The nonce of a sign-in: a hash of the secret that its session keeps for PKCE, as the
    specification proposes (OpenID Connect Core 1.0, section 15.5.2)."""
    digest = hashlib.sha256(b"nonce " + code_verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class IssuerFailed(OAuth2Error):  # type: ignore[misc]
    """What the issuer says cannot be used. The message is for the log: allauth's own may repeat
    whole answers, tokens included."""


class OidcClient(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]
    """Talks with the issuer for one request: what allauth calls an adapter of OAuth 2."""

    def __init__(self, request: HttpRequest, issuer: Issuer) -> None:
        self._issuer = issuer
        self._nonce = ""
        super().__init__(request, PROVIDER_ID)

    @property
    def openid_config(self) -> dict[str, Any]:
        """The discovery document. Raises `IssuerFailed`."""
        if not hasattr(self, "_document"):
            place = self._issuer.url.rstrip("/")
            document = self._get_json(f"{place}/.well-known/openid-configuration")
            if document.get("issuer") != self._issuer.url:
                raise IssuerFailed("The discovery document names another issuer.")
            self._document = document
        return self._document

    @property
    def basic_auth(self) -> bool:
        """Whether the client's secret goes into a header: so by default (Discovery 1.0)."""
        methods = self.openid_config.get("token_endpoint_auth_methods_supported", [])
        return "client_secret_post" not in methods

    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        """What has to be registered at the issuer."""
        return public_url(request.build_absolute_uri(reverse("openid_connect_callback")))

    def get_access_token_data(
        self,
        request: HttpRequest,
        app: SocialApp,
        client: OAuth2Client,
        pkce_code_verifier: str | None = None,
    ) -> dict[str, Any]:
        """Exchange the code. Raises `OAuth2Error`."""
        self._nonce = nonce_for(pkce_code_verifier or "")
        tokens: dict[str, Any] = super().get_access_token_data(
            request, app, client, pkce_code_verifier=pkce_code_verifier
        )
        return tokens

    def complete_login(
        self, request: HttpRequest, app: SocialApp, token: SocialToken, **kwargs: Any
    ) -> SocialLogin:
        """Who this is, by the ID token, and what userinfo adds. Raises `IssuerFailed`."""
        claims = self._claims(str(kwargs["response"].get("id_token", "")))
        if not claims["sub"]:
            raise IssuerFailed("The ID token names nobody.")
        about = self._userinfo(token.token)
        if about and about.get("sub") != claims["sub"]:
            raise IssuerFailed("Userinfo tells of somebody else than the ID token.")
        facts = {name: claims[name] for name in claims.keys() - _PASSING_CLAIMS} | about
        return self.get_provider().sociallogin_from_response(request, facts)

    def _claims(self, id_token: str) -> dict[str, Any]:
        try:
            return verified_claims(
                id_token,
                self._get_json(self.openid_config["jwks_uri"]),
                issuer=self._issuer.url,
                client_id=self._issuer.client_id,
                nonce=self._nonce,
            )
        except TokenRefused as error:
            raise IssuerFailed(str(error)) from error

    def _userinfo(self, access_token: str) -> dict[str, Any]:
        url = self.openid_config.get("userinfo_endpoint")
        if not url:
            return {}
        return self._get_json(url, {"Authorization": f"Bearer {access_token}"})

    def _get_json(self, url: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
        try:
            with get_adapter().get_requests_session() as session:
                response = session.request("GET", url, headers=headers)
                response.raise_for_status()
                found = response.json()
        except (RequestException, ValueError) as error:
            raise IssuerFailed(f"The issuer did not answer: {type(error).__name__}.") from error
        if not isinstance(found, dict):
            raise IssuerFailed("The issuer answered with something else than an object.")
        return found


class OidcProvider(OpenIDConnectProvider):  # type: ignore[misc]
    """The issuer as allauth sees it."""

    def __init__(self, request: HttpRequest | None, issuer: Issuer) -> None:
        self._issuer = issuer
        app = SocialApp(
            provider=PROVIDER_ID,
            provider_id=PROVIDER_ID,
            name=issuer.name,
            client_id=issuer.client_id,
            secret=issuer.client_secret,
            settings={"oauth_pkce_enabled": True},
        )
        super().__init__(request, app=app)

    def get_oauth2_adapter(self, request: HttpRequest) -> OidcClient:
        """Allauth's name for it."""
        return OidcClient(request, self._issuer)

    def get_pkce_params(self) -> dict[str, str]:
        """The secret of this sign-in, its hash for the issuer, and the nonce made from it."""
        params: dict[str, str] = super().get_pkce_params()
        return params | {"nonce": nonce_for(params["code_verifier"])}

    def get_scope_from_request(self, request: HttpRequest) -> list[str]:
        """As the settings say: allauth would let a link ask for more."""
        return list(self._issuer.scopes)

    def get_auth_params_from_request(self, request: HttpRequest, action: str) -> dict[str, str]:
        """Nothing that a link asks for."""
        return {}

    def get_login_url(self, request: HttpRequest, **kwargs: Any) -> str:
        """Where the button leads."""
        return reverse("openid_connect_login")

    def get_callback_url(self) -> str:
        """Its path."""
        return reverse("openid_connect_callback")
