"""The commands of `pbodl`. Each one reads its options, calls one function and prints; `pbodl.cli` registers them."""
