"""PBODL from Python, beyond the models themselves: the scikit-learn classifier, and the commands as functions."""
