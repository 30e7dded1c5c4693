"""The scheduling cycle, and the comparison of the records with SageMaker."""
