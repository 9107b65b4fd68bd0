"""A click log with known truth, in the shape of Avazu's."""

from pbodl.data.synthetic.synthetic_log import World

__all__ = ["World"]
