"""Where and how a run is carried out: executors, workers, Ray, jobs. The worker is never clever."""
