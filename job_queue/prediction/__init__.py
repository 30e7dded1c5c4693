"""Prediction of job runtimes from the runtimes of similar jobs. Pure: the standard library, no clock, no AWS."""
