"""Shells in jobs: SageMaker's remote debug, AWS's Session Manager, and its plugin on this machine."""
