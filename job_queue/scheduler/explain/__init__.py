"""Why each waiting job waits: reasons and messages, read from a finished plan state."""
