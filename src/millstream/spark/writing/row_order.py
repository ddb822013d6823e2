"""Whether a repeated task has its rows in the same order again: for the sink, which numbers them, this decides what a
repetition adds.

Spark promises that of no shuffle. What is known to keep the order that rows were read in is listed here, and everything
else is taken for something that does not.
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
"""Nodes of logical plans: sources that give the same rows in the same order, and what works row by row."""


def row_order_of(plan: Any) -> RowOrder:
    """The order in which rows of this logical plan of Spark's can be written again and again.

    INVALID_SETTING where they are sorted already, but perhaps not in full: only who made them knows.
    """
    if plan.nodeName() == "Sort":
        text = (
            "the rows are sorted before they are written, and those equal in that come in another order when a "
            "task is repeated: say rowOrder=given where no two are equal in what they are sorted by, or "
            "rowOrder=sorted for another order, by all that is in them"
        )
        raise MillstreamError(ErrorCode.INVALID_SETTING, text)
    if plan.nodeName().split(" ")[0] not in _KEEPING:
        return RowOrder.SORTED
    children = plan.children()
    orders = {row_order_of(children.apply(at)) for at in range(children.size())}
    return RowOrder.SORTED if RowOrder.SORTED in orders else RowOrder.GIVEN
