"""The layers of the network: each is a forward and a backward function, side by side in one file."""
