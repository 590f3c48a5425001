"""The zero-order engine of paper 000 (losses, finite differences, Adam), for every method that moves rows with it."""

PATHS = ("auto", "structured", "compiled", "blocked", "naive")  # of the Jacobian, see `dc.jacobian`
