"""Sign-in of users: by password, with a second factor, or through an OpenID Connect issuer.

django-allauth does the work under `/accounts/`. These files configure and extend it."""
