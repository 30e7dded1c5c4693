"""What the queue needs of AWS: tables, SageMaker, events, metrics, settings."""
