"""Jobs over many files: an input file becomes an output file, and shards share the work."""

from zoo.data.many_files.folder import JobFolder, JobResult
from zoo.data.many_files.plan import FileJob, FilePlan, is_many, plan_files
from zoo.data.many_files.shard import WHOLE_JOB, Shard, parse_shard

__all__ = [
    "WHOLE_JOB",
    "FileJob",
    "FilePlan",
    "JobFolder",
    "JobResult",
    "Shard",
    "is_many",
    "parse_shard",
    "plan_files",
]
