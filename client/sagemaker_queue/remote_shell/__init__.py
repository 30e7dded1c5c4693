"""A shell in a job: over SageMaker's remote debug, by AWS's Session Manager and its plugin on this machine."""
