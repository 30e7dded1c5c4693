"""SageMaker's API on this machine, for programs in any language: what concerns the queue's jobs, the hooks answer."""
