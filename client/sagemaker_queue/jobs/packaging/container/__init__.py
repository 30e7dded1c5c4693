"""Programs that run inside training containers; they are uploaded or sent in a request, and never imported."""
