"""Many processes train one model: shards hold the weights, workers learn minibatches, a coordinator deals them out."""
