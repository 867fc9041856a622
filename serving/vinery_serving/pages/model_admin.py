"""Served models and their aliases in Django's admin."""

from vinery_accounts.admin.base import register
from vinery_serving.models.resource import MODEL_ALIASES, MODELS

register(MODELS, is_of_platform=True)
register(MODEL_ALIASES)
