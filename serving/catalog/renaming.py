"""What goes by the name of a model, and so stays behind when the model gets another name.

It is not moved: a limit counts what the usage records of its name have, and a key whose client
still sends the old name must not silently get another one.
"""

from vinery_accounts.models import ApiKey, Limit, ModelWeight


def left_behind(old_name: str, new_name: str) -> list[str]:
    """Return a warning for each kind of rows that have the old name; none without a new name."""
    if new_name == old_name:
        return []
    return [
        f"{subject} {old_name}: {advice}"
        for subject, advice in (
            (_limits(old_name), f"they do not limit {new_name}."),
            (_weights(old_name), f"tokens of {new_name} count 1 in budgets."),
            (_keys(old_name), f"they may not use {new_name}."),
        )
        if subject
    ]


def _limits(name: str) -> str:
    num = Limit.objects.filter(model=name).count()
    return f"{_counted(num, 'limit is', 'limits are')} for" if num else ""


def _weights(name: str) -> str:
    return "The token weights are for" if ModelWeight.objects.filter(model=name).exists() else ""


def _keys(name: str) -> str:
    allowed = ApiKey.objects.filter(revoked_at=None).exclude(allowed_models=[])
    num = sum(name in names for names in allowed.values_list("allowed_models", flat=True))
    return f"{_counted(num, 'API key is', 'API keys are')} allowed to use" if num else ""


def _counted(num: int, one: str, many: str) -> str:
    return f"{num} {one if num == 1 else many}"
