"""What a model is: blocks of operations, and what is read off them."""

from vramwise.models.blocks import Block, Operation, Parameter
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.model import Model
from vramwise.models.registry import describe, supported_types

__all__ = ["Block", "Config", "LayerCache", "Model", "Operation", "Parameter", "describe", "supported_types"]
