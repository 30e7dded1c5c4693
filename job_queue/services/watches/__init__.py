"""Regular checks of jobs, outside the cycles: idle GPUs, hangs, work without a checkpoint, and ended attempts."""
