"""The paper's mathematics on plain arrays: every layer is a pair of functions, forward and backward, side by side."""
