"""Who used what: what remains of attempts that have ended, when their jobs are long forgotten."""
