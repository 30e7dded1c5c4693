"""The commands of ``smq``, a module for each group."""
