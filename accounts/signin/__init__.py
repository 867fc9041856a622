"""How people come in: by password, with a second factor, or through an OpenID Connect issuer.

django-allauth does the work under `/accounts/`; here is what it is told, and what it lacks:

    pages.py       gives allauth its request, and browsers their orders, under /accounts/ alone
    people.py      who may sign in at all
    account.py     allauth's questions about passwords and e-mail, answered
    factors.py     secrets of second factors: encrypted at rest, each code good for one use
    sessions.py    sessions that a dump of the database does not open
    journal.py     what of all this is told in the audit log
    required.py    who must have a second factor, and is sent to set one up
    recovery.py    the way back in for somebody who has lost password or phone
    oidc/          the issuer: settings, tokens, and what its claims give
"""
