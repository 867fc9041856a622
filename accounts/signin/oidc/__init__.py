"""Sign-in through an OpenID Connect issuer: the authorization code flow with PKCE.

issuer.py     what the settings say of it
token.py      is this ID token real, ours and for this sign-in? Pure
provider.py   allauth's provider, with a nonce and a token that is always verified
adapter.py    which account the person gets, if any
rights.py     groups of the issuer → superuser, and a role in an organisation
views.py      the two URLs
"""
