"""What a cycle finds out about the fleet: SageMaker's list, training plans, warm pools, checkpoints."""
