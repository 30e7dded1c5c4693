"""The pages of ``smq ui``. Each page builds its elements in a tab, and updates these elements."""
