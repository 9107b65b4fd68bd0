"""How often rows are visited while a model learns."""
