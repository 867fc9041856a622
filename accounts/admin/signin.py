"""Keeps allauth's rows out of the admin: they are the works of sign-in, made and read by its own
pages, and what an administrator may do about them is done at the user."""

from __future__ import annotations

from django.apps import apps
from django.contrib import admin

for _app in ("account", "mfa", "socialaccount", "usersessions"):
    for _model in apps.get_app_config(_app).get_models():
        if admin.site.is_registered(_model):
            admin.site.unregister(_model)
