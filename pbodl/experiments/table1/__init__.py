"""The paper's Table 1: models trained on all days but the last, and tested on the last."""
