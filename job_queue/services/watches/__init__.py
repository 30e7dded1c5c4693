"""Regular checks outside the cycles: idle GPUs, hangs and unsaved work of running jobs; utilization of ended ones."""
