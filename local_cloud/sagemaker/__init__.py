"""SageMaker's training API: the wire protocol, the registry of jobs, their states and events."""
