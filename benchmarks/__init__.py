"""Speed beside PyTorch and Vowpal Wabbit: `python -m benchmarks.speed`.

Every contestant gets one thread. The libraries read these variables when they load, so they are set here, before any import.
"""

import os

for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"
