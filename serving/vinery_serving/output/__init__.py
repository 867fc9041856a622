"""From token ids to events: detokenise, stop strings, reasoning and tool calls. Pure."""
