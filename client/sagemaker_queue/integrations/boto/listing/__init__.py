"""Lists of training jobs that show a job of the queue in place of its attempts."""
