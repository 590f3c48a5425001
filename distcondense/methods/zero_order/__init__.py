"""The zero-order engine of Thakur et al. 2026 (losses, differences, Adam), for every method that moves rows with it."""

PATHS = ("auto", "structured", "compiled", "blocked", "naive")  # of the Jacobian, see `dc.jacobian`
