"""What goes by the name of a model, when the model gets another name.

Aliases follow it. All else stays behind: a limit counts what the usage records of its name have,
and a key whose client still sends the old name must not silently get another one.
"""

from vinery_accounts.models import ApiKey, Limit, ModelWeight
from vinery_accounts.services import changes
from vinery_serving.catalog.aliases import ModelAlias


def follow_name(old_name: str, new_name: str) -> None:
    """Let the aliases of a model follow its new name. Each change is audited."""
    if new_name == old_name:
        return
    for alias in ModelAlias.objects.all():
        if old_name in alias.targets:
            named = (
                (new_name if name == old_name else name, weight)
                for name, weight in alias.targets.items()
            )
            changes.switch(alias, "update", targets=dict(named))


def left_behind(old_name: str, new_name: str) -> list[str]:
    """Return a warning for each kind of rows that have the old name; none without a new name."""
    if new_name == old_name:
        return []
    warnings = (
        _limits(old_name, new_name),
        _weights(old_name, new_name),
        _keys(old_name, new_name),
    )
    return [each for each in warnings if each]


def _limits(old: str, new: str) -> str:
    num = Limit.objects.filter(model=old).count()
    if num == 1:
        return f"1 limit is for {old}: it does not hold for {new}."
    return f"{num} limits are for {old}: they do not hold for {new}." if num else ""


def _weights(old: str, new: str) -> str:
    if not ModelWeight.objects.filter(model=old).exists():
        return ""
    return f"The token weights are for {old}: they do not count for {new}."


def _keys(old: str, new: str) -> str:
    lists = ApiKey.objects.filter(revoked_at=None).exclude(allowed_models=[])
    num = sum(old in names for names in lists.values_list("allowed_models", flat=True))
    if num == 1:
        return f"1 API key is allowed to use {old}: it may not use {new}."
    return f"{num} API keys are allowed to use {old}: they may not use {new}." if num else ""
