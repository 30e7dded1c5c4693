"""Prediction of job runtimes from the runtimes of similar jobs. The code is pure: it has no clock and no AWS."""
