"""Commands by which people enter the containers of their jobs."""
