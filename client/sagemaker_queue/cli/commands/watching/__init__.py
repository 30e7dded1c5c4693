"""``smq top`` and ``smq notify``: they look again and again."""
