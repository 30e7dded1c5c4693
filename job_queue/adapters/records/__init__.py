"""Rows besides jobs and metadata: ended attempts, places in S3, old policies, outlook, published plan, permits."""
