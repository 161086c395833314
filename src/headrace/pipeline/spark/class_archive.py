"""The archive of Spark's classes. A JVM that maps it starts in half the time, because it does not parse and verify 17,000 classes again.

Java calls this class data sharing. The archive is a file of the virtual environment, as Spark's jars are. Java checks that its own build
and these jars are those of the archive, and ignores the archive otherwise.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Final

import pyspark

QUIET: Final = ("-Xlog:disable", "-Xlog:all=error")
"""Java would print a warning for each class that it cannot archive, and for an archive that it ignores."""


def class_archive(java_home: Path) -> Path:
    """Return the path of the archive for this Java and this PySpark. The file may be missing."""
    try:
        release = (java_home / "release").read_bytes()
    except OSError:
        release = b""
    return Path(sys.prefix) / "var" / "headrace" / f"spark-{pyspark.__version__}-{hashlib.sha256(release).hexdigest()[:12]}.jsa"


def archive_options(java_home: Path) -> tuple[str, ...]:
    """Return the options with which Java maps the archive, or none if there is no archive."""
    archive = class_archive(java_home)
    return (f'"-XX:SharedArchiveFile={archive}"', *QUIET) if archive.is_file() else ()
