"""Look-ups in other services: SageMaker's lists and calendars, objects in S3, metrics and logs in CloudWatch."""
