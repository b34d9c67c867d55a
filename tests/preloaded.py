"""What a process needs late, loaded before it is forked.

The SDK hashes all loaded code for a worker that names no build, which takes half a second; httpx loads its
transport with the first client; and what is there already need not be gone through for garbage.
"""

from __future__ import annotations

import gc
import importlib

from temporalio.worker import _worker

importlib.import_module("httpcore")
_worker.load_default_build_id()
gc.collect()
gc.freeze()
