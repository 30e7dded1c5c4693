"""The pages: each builds its elements in a tab, and updates them."""
