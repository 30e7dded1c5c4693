"""Calls of CloudWatch for jobs of the queue: logs and metrics of all attempts appear as those of one training job."""
