"""Looking inside a trained model: features, weights, and the reasons of one prediction."""
