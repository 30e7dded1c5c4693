"""The handlers that a botocore client asks before it sends a request, a module for each AWS service."""
