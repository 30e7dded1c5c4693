"""HTTP ends here: routes, request bodies, responses, pages."""
