"""The queue's access to AWS: tables, SageMaker, events, metrics, settings."""
