"""Launching: how fast attempts may be launched, and what SageMaker means when it refuses one."""
