"""What tables and pages are made of, for the terminal and for notebooks: columns, rows, words."""
