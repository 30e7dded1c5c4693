"""The execution of training jobs: their instances, processes, files and logs."""
