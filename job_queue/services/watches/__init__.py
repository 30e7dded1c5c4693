"""Regular looks at jobs, apart from cycles: idle GPUs, hangs, work without a checkpoint, and ended attempts."""
