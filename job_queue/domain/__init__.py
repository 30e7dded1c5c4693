"""The queue's own rules, pure: no AWS, no HTTP."""
