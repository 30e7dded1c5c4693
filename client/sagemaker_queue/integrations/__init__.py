"""Integrations of the queue with existing clients, such as boto3 and the SageMaker Python SDK v2 and v3."""
