"""The handlers that a botocore client calls before it sends a request, and the functions that answer the calls."""
