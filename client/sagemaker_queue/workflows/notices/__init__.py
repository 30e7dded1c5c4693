"""Notices to users about changes of their jobs, and the channels that deliver them."""
