"""Calls of CloudWatch for jobs of the queue, which show the logs and metrics of all attempts as one training job."""
