"""Prompts: model folders, chat templates and tokenizers turn a request into token ids."""
