"""Lists of training jobs in which a job of the queue stands for its attempts."""
