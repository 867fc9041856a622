"""From a generation request to token ids: tokenizers, chat templates, model folders."""
