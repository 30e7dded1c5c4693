"""The handlers that a botocore client calls before it sends a request, with a module or folder for each AWS service."""
