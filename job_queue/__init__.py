"""The brain: everything that the queue's Lambda function runs."""
