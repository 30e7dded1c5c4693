"""Pictures of the queue, by Plotly: pure functions of what the queue has answered. The page and its export share them."""
