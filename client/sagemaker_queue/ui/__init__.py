"""The queue in a browser: a page that is served on the user's own machine, and asks with the user's own credentials."""
