"""Where and how a run is carried out: checkpoints now; executors are to live here too. The worker is never clever."""
