"""How much of its message a worker sends, so that the sum of all workers' messages does not overshoot.

placeholder
"""
