"""Tells lineage servers what runs read and wrote, as OpenLineage events made of plans and records; no Spark."""
