"""The expectations about live jobs, derived from finished jobs. The code is pure."""
