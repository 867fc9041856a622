"""The end users of requests: what clients name the users of their own."""

from typing import Final

from vinery_accounts.keys.secrets import digest_of, key_peppers
from vinery_accounts.keys.table import Caller

MAX_END_USER: Final = 64  # characters, as of OpenAI's safety_identifier


def stored_end_user(end_user: str, caller: Caller) -> str:
    """Return what usage records have: the beginning, or a hash where the caller's project asks for
    it. The hash is keyed, since ids and addresses can be guessed, and differs by project."""
    if not (end_user and caller.hashes_end_users):
        return end_user.replace("\0", "")[:MAX_END_USER]  # PostgreSQL refuses it
    peppers = key_peppers()
    named = f"end user {caller.project_id}\0{end_user}".encode("utf-8", "replace")
    return digest_of(named, peppers[min(peppers)]).hex()
