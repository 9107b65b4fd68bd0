"""What a learner watches beside its figures: the fields, the weights that move, and whether its uncertainty is honest."""
