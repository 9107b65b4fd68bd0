"""The models that PBODL is compared with, built as their authors would: same contract, same data, same commands."""

from pbodl.baselines.adpredictor import AdPredictor
from pbodl.baselines.batch_dnn import BatchDNN
from pbodl.baselines.batch_fm import BatchFM
from pbodl.baselines.ftrl import FTRLProximal
from pbodl.baselines.matchbox import MatchBox

__all__ = ["AdPredictor", "BatchDNN", "BatchFM", "FTRLProximal", "MatchBox"]
