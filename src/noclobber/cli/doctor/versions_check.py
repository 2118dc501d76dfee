"""The doctor's check of the versions that are kept: can they be used, and are they within their bounds?"""

from __future__ import annotations

from noclobber.core.clock import SYSTEM_CLOCK
from noclobber.core.findings import Finding
from noclobber.core.options import DEFAULTS, load_options
from noclobber.disk.versions import Versions, VersionsUnusableError
from noclobber.errors import ConfigError


def check_versions(root: str, *, repair: bool) -> list[Finding]:
    """Say how much is kept; with `repair`, remove what is too old or too much."""
    try:
        options = load_options(root)
    except ConfigError:
        options = DEFAULTS  # Another check says what is wrong with the file.
    try:
        versions = Versions(root, make=False)
    except FileNotFoundError:
        return []
    except VersionsUnusableError as error:
        return [Finding("versions", False, "past versions cannot be kept here", str(error))]
    if unusable := versions.unusable_parts():
        names = ", ".join(unusable[:3])
        remedy = f"{names} in {versions.path}: no folder, but a link or a file. Remove it."
        return [Finding("versions", False, "some past versions cannot be kept here", remedy)]
    if repair:
        versions.prune(SYSTEM_CLOCK.now_s(), options.versions_days, options.versions_bytes)
    sizes = [each.size_bytes for each in versions]
    detail = f"{len(sizes)} past versions, {sum(sizes) / (1 << 20):.1f} MiB"
    if options.versions == "off" and sizes:
        return [Finding("versions", True, detail, "the option is off: `noclobber versions prune --all`")]
    return [Finding("versions", True, detail)]
