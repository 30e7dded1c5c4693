"""A local proxy for SageMaker's API, for programs in any language. The hooks answer calls about the queue's jobs."""
