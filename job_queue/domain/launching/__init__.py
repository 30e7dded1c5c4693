"""Launching: the rate of launches, the proof of an attempt, and the meaning of SageMaker's refusals."""
