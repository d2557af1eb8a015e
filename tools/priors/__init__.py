"""Public outcomes and anchors → what estimates begin with."""
