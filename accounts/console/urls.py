"""Everything under `/console/`."""

from django.urls import path

from vinery_accounts.console.keys import ActOnKey, Keys, MakeKey, SwitchKey
from vinery_accounts.console.limits import ChangeLimit, Limits, RemoveLimit, SetLimit
from vinery_accounts.console.overview import Overview
from vinery_accounts.console.quarantine import Quarantine, Release
from vinery_accounts.console.refusals import Refusals
from vinery_accounts.console.usage import Usage

app_name = "console"
urlpatterns = [
    path("", Overview.as_view(), name="overview"),
    path("usage/", Usage.as_view(), name="usage"),
    path("keys/", Keys.as_view(), name="keys"),
    path("keys/new/", MakeKey.as_view(), name="key-new"),
    path("keys/<int:key_id>/rotate/", ActOnKey.as_view(does="rotate"), name="key-rotate"),
    path("keys/<int:key_id>/revoke/", ActOnKey.as_view(does="revoke"), name="key-revoke"),
    path("keys/<int:key_id>/pause/", SwitchKey.as_view(does="pause"), name="key-pause"),
    path("keys/<int:key_id>/resume/", SwitchKey.as_view(does="resume"), name="key-resume"),
    path("limits/", Limits.as_view(), name="limits"),
    path("limits/new/", SetLimit.as_view(), name="limit-new"),
    path("limits/<int:limit_id>/", ChangeLimit.as_view(), name="limit"),
    path("limits/<int:limit_id>/remove/", RemoveLimit.as_view(), name="limit-remove"),
    path("refusals/", Refusals.as_view(), name="refusals"),
    path("quarantine/", Quarantine.as_view(), name="quarantine"),
    path("quarantine/<int:row_id>/release/", Release.as_view(), name="quarantine-release"),
]
