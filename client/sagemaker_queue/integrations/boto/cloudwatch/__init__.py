"""Calls of CloudWatch, for jobs of the queue: what attempts log and measure, as one training job."""
