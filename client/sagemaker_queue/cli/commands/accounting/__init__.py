"""The commands of ``smq`` about what has been: history, and what was used."""
