"""What can go wrong with the local cloud itself."""


class LocalCloudError(Exception):
    """The local cloud cannot start, or cannot do what was asked; the message is for the person who started it."""
