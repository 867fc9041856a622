"""Verification of ID tokens: OpenID Connect Core 1.0, section 3.1.3.7.

The signature is always verified, also where the specification would trust TLS instead.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any, Final

import jwt

# Signatures by the issuer's private key. No symmetric algorithms, and not `none`.
_ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
# The clock difference that is accepted.
_LEEWAY_S: Final = 60


class TokenRefused(Exception):
    """The token is not valid. The message is safe to log: it contains nothing of the token."""


def verified_claims(
    id_token: str, jwks: Mapping[str, Any], *, issuer: str, client_id: str, nonce: str
) -> dict[str, Any]:
    """The claims of a valid token. `jwks` is the issuer's key set, parsed from JSON.

    Raises `TokenRefused` if the token is not valid for this issuer, client and sign-in.
    """
    try:
        header = jwt.get_unverified_header(id_token)
        claims: dict[str, Any] = jwt.decode(
            id_token,
            _key(jwks, header),
            algorithms=sorted(_ALGORITHMS),
            issuer=issuer,
            audience=client_id,
            leeway=_LEEWAY_S,
            options={"require": ["iss", "aud", "sub", "exp", "iat"]},
        )
    except jwt.PyJWTError as error:
        raise TokenRefused(f"The ID token was refused: {type(error).__name__}.") from error
    if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise TokenRefused("The ID token belongs to another sign-in: its nonce is not ours.")
    if not _is_party(claims, client_id):
        raise TokenRefused("The ID token was issued for another client: its azp is not ours.")
    return claims


def _key(jwks: Mapping[str, Any], header: Mapping[str, Any]) -> jwt.PyJWK:
    """The key that the header names, or the only one when it names none."""
    if header.get("alg") not in _ALGORITHMS:
        raise jwt.InvalidAlgorithmError
    keys = [key for key in jwt.PyJWKSet.from_dict(dict(jwks)).keys if _may_sign(key)]
    named = [key for key in keys if "kid" not in header or key.key_id == header["kid"]]
    if len(named) != 1:
        raise jwt.InvalidKeyError
    return named[0]


def _may_sign(key: jwt.PyJWK) -> bool:
    return key.public_key_use in (None, "sig")


def _is_party(claims: Mapping[str, Any], client_id: str) -> bool:
    """Whether the token was issued to us. A token for several audiences must name us in `azp`."""
    azp = claims.get("azp")
    several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    return azp == client_id if azp is not None or several else True
