"""The models: their common contract, their specification, the deep probit family, and snapshots."""
