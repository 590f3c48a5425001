"""The only package that imports ray: session, actors, rows, tasks, jobs. What is private to Ray: `_ray_private.py`.

Thin on purpose. What happens when a worker dies is decided in `pool.py`, which tile or bucket goes where in `tiles.py`
and `remote_shards.py`; what is computed is in `worker.py` and `row_worker.py`. None of them knows Ray.
"""
