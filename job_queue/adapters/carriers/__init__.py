"""The queue's side of carriers: pack the agent that runs in them, send it orders and read its reports."""
