"""Decides from a query's plan whether a repeated task has its rows in the same order.

The sink numbers rows, so their order decides what a repeated task adds. Spark promises no order after a shuffle. This
module lists the plan nodes that are known to keep the order in which rows were read; all others are treated as a
shuffle.
"""

from typing import Any

from millstream.model.errors import ErrorCode, MillstreamError
from millstream.spark.options import RowOrder

_KEEPING = frozenset(
    {
        "CollectMetrics",
        "EventTimeWatermark",
        "Filter",
        "Generate",
        "LocalRelation",
        "LogicalRelation",
        "MapInArrow",
        "MapInPandas",
        "Project",
        "Range",
        "RelationV2",
        "ResolvedHint",
        "StreamingDataSourceV2ScanRelation",
        "StreamingExecutionRelation",
        "StreamingRelation",
        "StreamingRelationV2",
        "SubqueryAlias",
        "Union",
        "View",
    }
)
"""Nodes of logical plans that keep the order: sources that repeat their rows in order, and row-by-row operations."""


def row_order_of(plan: Any) -> RowOrder:
    """Returns the order in which the rows of this logical plan must be written so that a batch can be repeated.

    Raises INVALID_SETTING for a plan that ends with a sort: only the author knows whether the sort order is total.
    """
    if plan.nodeName() == "Sort":
        text = (
            "the rows are sorted before they are written, but rows with equal sort keys may swap when a task "
            "is repeated: set the option rowOrder=given if no two rows have equal sort keys, or rowOrder=sorted to "
            "sort them by all their columns instead"
        )
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    if plan.nodeName().split(" ")[0] not in _KEEPING:
        return RowOrder.SORTED
    children = plan.children()
    orders = {row_order_of(children.apply(at)) for at in range(children.size())}
    return RowOrder.SORTED if RowOrder.SORTED in orders else RowOrder.GIVEN
