"""Allauth's provider for OpenID Connect, and its two URLs.

Beyond allauth's provider: a nonce, an ID token that is required and always verified, and a check
that the discovery document names the issuer. ID tokens are verified by OpenID Connect Core 1.0,
section 3.1.3.7, and their signatures also where that section would trust TLS instead."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import jwt
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.helpers import render_authentication_error
from allauth.socialaccount.models import SocialApp, SocialLogin, SocialToken
from allauth.socialaccount.providers.oauth2.client import OAuth2Client, OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView, OAuth2LoginView
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from requests import RequestException

from vinery_accounts.signin.issuer import PROVIDER_ID, Issuer
from vinery_accounts.signin.people import public_url

# Claims that are useless after the sign-in.
_PASSING: Final = frozenset({"nonce", "at_hash", "c_hash", "exp", "iat", "auth_time", "jti", "sid"})
# Signatures by the issuer's private key. No symmetric algorithms, and not `none`.
_ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)


def nonce_for(code_verifier: str) -> str:
    """The nonce of a sign-in: a hash of its PKCE secret (OpenID Connect Core 1.0, 15.5.2)."""
    digest = hashlib.sha256(b"nonce " + code_verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class IssuerFailed(OAuth2Error):  # type: ignore[misc]
    """The issuer's response cannot be used. The message is safe to log: allauth's own messages may
    contain whole responses with tokens."""


class OidcClient(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]
    """The connection to the issuer for one request; allauth calls it an OAuth 2 adapter."""

    def __init__(self, request: HttpRequest, issuer: Issuer) -> None:
        self._issuer = issuer
        self._nonce = ""
        super().__init__(request, PROVIDER_ID)

    @cached_property
    def openid_config(self) -> dict[str, Any]:
        base_url = self._issuer.url.rstrip("/")
        document = self._get_json(f"{base_url}/.well-known/openid-configuration")
        if document.get("issuer") != self._issuer.url:
            raise IssuerFailed("The discovery document names another issuer.")
        return document

    @property
    def basic_auth(self) -> bool:
        """Whether the client's secret is sent in a header: the default of Discovery 1.0."""
        methods = self.openid_config.get("token_endpoint_auth_methods_supported", [])
        return "client_secret_post" not in methods

    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        return public_url(request.build_absolute_uri(reverse("openid_connect_callback")))

    def get_access_token_data(
        self,
        request: HttpRequest,
        app: SocialApp,
        client: OAuth2Client,
        pkce_code_verifier: str | None = None,
    ) -> dict[str, Any]:
        """Exchange the code for tokens. Raises `OAuth2Error`."""
        self._nonce = nonce_for(pkce_code_verifier or "")
        tokens: dict[str, Any] = super().get_access_token_data(
            request, app, client, pkce_code_verifier=pkce_code_verifier
        )
        return tokens

    def complete_login(
        self, request: HttpRequest, app: SocialApp, token: SocialToken, **kwargs: Any
    ) -> SocialLogin:
        """The user of the ID token, with claims of userinfo. Raises `IssuerFailed`."""
        claims = self._claims(str(kwargs["response"].get("id_token", "")))
        if not claims["sub"]:
            raise IssuerFailed("The ID token has no subject.")
        url, bearer = self.openid_config.get("userinfo_endpoint"), f"Bearer {token.token}"
        userinfo = self._get_json(url, {"Authorization": bearer}) if url else {}
        if userinfo and userinfo.get("sub") != claims["sub"]:
            raise IssuerFailed("Userinfo has another subject than the ID token.")
        kept = {name: claims[name] for name in claims.keys() - _PASSING} | userinfo
        # A boolean (Core 1.0, 5.1). Allauth would take the text "true", too.
        verified = {"email_verified": kept.get("email_verified") is True}
        return self.get_provider().sociallogin_from_response(request, kept | verified)

    def _claims(self, id_token: str) -> dict[str, Any]:
        jwks, client_id = self._get_json(self.openid_config["jwks_uri"]), self._issuer.client_id
        try:
            claims: dict[str, Any] = jwt.decode(
                id_token,
                _key(jwks, jwt.get_unverified_header(id_token)),
                algorithms=sorted(_ALGORITHMS),
                issuer=self._issuer.url,
                audience=client_id,
                leeway=60,  # seconds: the clock difference that is accepted
                options={"require": ["iss", "aud", "sub", "exp", "iat"]},
            )
        except jwt.PyJWTError as error:
            raise IssuerFailed(f"The ID token was refused: {type(error).__name__}.") from error
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), self._nonce.encode()):
            raise IssuerFailed("The ID token belongs to another sign-in: its nonce is not ours.")
        if not _is_party(claims, client_id):
            raise IssuerFailed("The ID token was issued for another client: its azp is not ours.")
        return claims

    def _get_json(self, url: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
        try:
            with get_adapter().get_requests_session() as session:
                response = session.request("GET", url, headers=headers)
                response.raise_for_status()
                found = response.json()
        except (RequestException, ValueError) as error:
            raise IssuerFailed(f"The issuer did not answer: {type(error).__name__}.") from error
        if not isinstance(found, dict):
            raise IssuerFailed("The issuer's response is not a JSON object.")
        return found


def _key(jwks: Mapping[str, Any], header: Mapping[str, Any]) -> jwt.PyJWK:
    if header.get("alg") not in _ALGORITHMS:
        raise jwt.InvalidAlgorithmError
    named = [
        key
        for key in jwt.PyJWKSet.from_dict(dict(jwks)).keys
        if key.public_key_use in (None, "sig")
        and ("kid" not in header or key.key_id == header["kid"])
    ]
    if len(named) != 1:
        raise jwt.InvalidKeyError
    return named[0]


def _is_party(claims: Mapping[str, Any], client_id: str) -> bool:
    """Whether the token was issued to us. A token for several audiences must name us in `azp`."""
    azp = claims.get("azp")
    several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    return azp == client_id if azp is not None or several else True


class OidcProvider(OpenIDConnectProvider):  # type: ignore[misc]
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
        return OidcClient(request, self._issuer)

    def get_pkce_params(self) -> dict[str, str]:
        params: dict[str, str] = super().get_pkce_params()
        return params | {"nonce": nonce_for(params["code_verifier"])}

    def get_scope_from_request(self, request: HttpRequest) -> list[str]:
        """The scopes of the settings: allauth would let a link ask for more."""
        return list(self._issuer.scopes)

    def get_auth_params_from_request(self, request: HttpRequest, action: str) -> dict[str, str]:
        """No parameters: allauth would take them from the link."""
        return {}

    def get_login_url(self, request: HttpRequest, **kwargs: Any) -> str:
        return reverse("openid_connect_login")

    def get_callback_url(self) -> str:
        return reverse("openid_connect_callback")


def respond(request: HttpRequest, *, is_callback: bool) -> HttpResponse:
    """Redirect to the issuer, with a state, a nonce and a PKCE challenge of this session; or, back
    from there with a code, sign the user in. Raises `Http404` if no issuer is configured."""
    if settings.VINERY_OIDC is None:
        raise Http404
    client = OidcClient(request, settings.VINERY_OIDC)
    view = (OAuth2CallbackView if is_callback else OAuth2LoginView).adapter_view(client)
    try:
        response: HttpResponse = view(request)
    except OAuth2Error as error:  # the issuer does not answer
        provider = get_adapter().get_provider(request, PROVIDER_ID)
        response = render_authentication_error(request, provider, exception=error)
    return response
