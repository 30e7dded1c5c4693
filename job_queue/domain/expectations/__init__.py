"""The expectations about live jobs, derived from finished jobs; pure."""
