"""The parts of a cycle that concern waiting jobs: dependencies, deadlines and parking."""
