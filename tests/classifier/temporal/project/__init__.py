"""A project that is not ours, as its authors would write it: `workflows.py`, `activities.py`, `worker.py`."""
