"""Where and how a run is carried out: executors, workers, checkpoints, jobs. The worker is never clever."""
