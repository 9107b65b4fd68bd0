"""Is a model's uncertainty honest? Coverage where the truth is known, and checks that work on any log."""
