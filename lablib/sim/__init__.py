"""Say what should happen, without a process: who holds what after each collective, and the textbook bytes."""

from lablib.sim.agreement import Agreement, Measured, compare
from lablib.sim.collective import OPERATIONS, Collective, Operation
from lablib.sim.dtypes import DTYPES, REDUCE_OPS, DType
from lablib.sim.placement import Placement, place
from lablib.sim.predict import predict, results
from lablib.sim.tile import Holding, Move, Step, Tile, Undefined

__all__ = [
    "DTYPES",
    "OPERATIONS",
    "REDUCE_OPS",
    "Agreement",
    "Collective",
    "DType",
    "Holding",
    "Measured",
    "Move",
    "Operation",
    "Placement",
    "Step",
    "Tile",
    "Undefined",
    "compare",
    "place",
    "predict",
    "results",
]
