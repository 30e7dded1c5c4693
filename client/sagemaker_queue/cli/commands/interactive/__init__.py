"""Commands that open sessions in the containers of jobs."""
