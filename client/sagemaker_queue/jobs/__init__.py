"""Training jobs before their submission: the code that is packed, its options, and the checks."""
