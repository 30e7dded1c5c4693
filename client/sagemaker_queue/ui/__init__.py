"""The queue in a browser: pages served on the user's machine, which use the queue with the user's credentials."""
