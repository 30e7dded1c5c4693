"""What goes wrong on purpose, and time that passes faster."""
