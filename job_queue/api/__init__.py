"""The HTTP layer: routes, request bodies, responses, pages."""
