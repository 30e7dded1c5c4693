"""What the queue looks up in other services: SageMaker's lists and calendars, objects in S3."""
