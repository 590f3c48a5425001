"""The only room that imports ray: session, actors, tasks, jobs. What is private to Ray is in `_ray_private.py`.

Thin on purpose. What is decided (which tile goes where, what happens when a worker dies) is in `dispatch.py`, what is
computed in `worker.py`; neither knows Ray.
"""
