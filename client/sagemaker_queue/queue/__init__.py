"""The queue as a client sees it: the API client, its transport, configuration, identity and data."""
