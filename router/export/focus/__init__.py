"""FOCUS, the FinOps Open Cost and Usage Specification: the ledger as a Cost and Usage dataset of version 1.4."""

from router.export.focus.columns import VERSION
from router.export.focus.dataset import Directory, dataset
from router.export.focus.files import ParquetMissing, write_csv, write_parquet

__all__ = ["VERSION", "Directory", "ParquetMissing", "dataset", "write_csv", "write_parquet"]
