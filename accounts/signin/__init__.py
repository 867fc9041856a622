"""Sign-in of users: by password, with a second factor, or through an OpenID Connect issuer.

django-allauth does the work under `/accounts/`. These files configure and extend it:

    middleware.py     who must have a second factor; allauth's request context, security headers
    people.py         who may sign in, with which password, and the first page afterwards
    attempts.py       how often wrong passwords and codes may be tried
    factors.py        second factors: encrypted secrets, codes that work once
    sessions.py       signed session cookies, encrypted session rows
    log.py            sign-ins in the audit log
    recovery.py       what an administrator does for a user who lost the password or the phone
    views.py          our own pages
    issuer.py         the settings of the OpenID Connect issuer
    oidc_provider.py  allauth's provider for the issuer, its two URLs, verification of ID tokens
    oidc_adapter.py   which account the user of an issuer gets, with which rights
"""
