"""Pictures of the queue, by Plotly: pure functions of what it has answered. The page and its export share them."""
