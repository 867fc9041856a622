"""The token weights of models, which are prices while there is a currency."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict
from django.urls import reverse

from vinery_accounts.console.generated import New, Rows
from vinery_accounts.console.page import at
from vinery_accounts.models import Currency
from vinery_accounts.resources.forms import ResourceForm
from vinery_accounts.resources.limits import MODEL_WEIGHTS


@at("model-weights/", "model-weights")
class Prices(Rows):
    resource = MODEL_WEIGHTS
    note = "A change counts for new requests, within two seconds. Past costs stay as they are."

    def buttons(self) -> Mapping[str, str]:
        if not self.access.is_superuser:
            return {}
        currency = Currency.objects.first()
        more = {"Set a currency": reverse("console:currency-new")}
        if currency is not None:
            more = {"Change the currency": reverse("console:currency-row", args=[currency.pk])}
        return {**super().buttons(), **more}


@at("model-weights/new/", "model-weights-new")
class NewPrices(New):
    """`model=qwen-a` fills in the form."""

    resource, heading = MODEL_WEIGHTS, "Prices of a model"

    def make_form(self, data: QueryDict | None, row: Any = None, **more: Any) -> ResourceForm:
        more["initial"] = more["initial"] | {"model": self.request.GET.get("model", "")[:255]}
        return super().make_form(data, row, **more)


def prices_address(model: str) -> str:
    return f"{reverse('console:model-weights-new')}?{urlencode({'model': model})}"
