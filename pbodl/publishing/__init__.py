"""What trainers publish and servers follow: model folders, deltas, and the curves of a run."""
