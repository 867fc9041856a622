"""The token weights of models, which are prices while there is a currency."""

from collections.abc import Mapping

from django.urls import reverse

from vinery_accounts.console.generated import Rows
from vinery_accounts.console.page import at
from vinery_accounts.models import Currency
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
