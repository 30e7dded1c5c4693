"""The error of the local cloud itself, as opposed to the errors of AWS that it emulates."""


class LocalCloudError(Exception):
    """A failure to start the local cloud, or to carry out a command. The message is for the user of the command."""
