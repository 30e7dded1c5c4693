"""The pages: each builds its elements in the tab that it is given, and keeps them fresh."""
