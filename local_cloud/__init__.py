"""AWS on one machine: ministack, SageMaker's training API and the queue's own template."""
