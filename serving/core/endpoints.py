"""The endpoints that generate text. Settings import this file, so each command does."""

from enum import StrEnum


class Endpoint(StrEnum):
    """The generation endpoints. The values stand in URLs and in usage records."""

    CHAT = "chat/completions"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    MESSAGES = "messages"
