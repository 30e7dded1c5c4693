"""The HTTP layer: routes, request bodies, responses, and pages of lists."""
