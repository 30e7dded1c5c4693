"""Pictures of the terminal for the documentation."""
