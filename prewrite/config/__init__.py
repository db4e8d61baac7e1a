"""Every setting of PRewrite, once: a section a file; `loading.py` reads a file into them. Nothing here imports torch.

Names are those of TRL and transformers wherever a setting exists there.
"""

from prewrite.config.budget import BudgetSettings
from prewrite.config.data import CustomTaskSettings, DataSettings
from prewrite.config.loss import LossSettings
from prewrite.config.policy import LoraSettings, PolicySettings
from prewrite.config.reward import RewardSettings
from prewrite.config.rollout import RolloutSettings
from prewrite.config.run import Config
from prewrite.config.selection import SelectionSettings
from prewrite.config.sft import SFTSettings
from prewrite.config.stages import StageSettings
from prewrite.config.task_model import TaskModelSettings
from prewrite.config.training import TrainingSettings

__all__ = [
    "BudgetSettings", "Config", "CustomTaskSettings", "DataSettings", "LoraSettings", "LossSettings", "PolicySettings",
    "RewardSettings", "RolloutSettings", "SFTSettings", "SelectionSettings", "StageSettings", "TaskModelSettings",
    "TrainingSettings",
]  # fmt: skip
