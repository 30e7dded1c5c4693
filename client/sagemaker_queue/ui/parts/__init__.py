"""Parts of pages that have a purpose of their own: buttons with dialogs, cards, logs and lists of checkpoints."""
