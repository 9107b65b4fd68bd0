"""Look inside a trained model: features, weights, and the reasons of a prediction."""
