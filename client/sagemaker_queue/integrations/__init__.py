"""The queue behind the clients that people use already: boto3, and the SageMaker Python SDK v2 and v3."""
