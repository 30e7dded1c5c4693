"""A cycle's knowledge of the fleet: SageMaker's list, training plans, warm pools, checkpoints."""
