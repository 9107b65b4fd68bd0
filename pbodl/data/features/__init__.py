"""What a row's values become before they are hashed: nested values, computed labels, crosses."""
