"""The paper's Table 2: models on a long log of one's own, hour by hour, and tested on the last day."""
