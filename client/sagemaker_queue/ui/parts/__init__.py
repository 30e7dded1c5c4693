"""Parts of pages: buttons with dialogs, cards, logs and lists of checkpoints."""
