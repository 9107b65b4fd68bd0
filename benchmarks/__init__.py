"""Speed beside PyTorch and Vowpal Wabbit: `python -m benchmarks.speed`.

One thread for everybody. The libraries read these variables when they are loaded, hence here, before any of them is.
"""

import os

for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_variable] = "1"
