"""
Names of files that hold secrets: the one list, for everything that keeps copies of files.

By the name alone, in any case, and by the folder that a file is in. So a harmless file may be left out, and a
secret in a file of an ordinary name is kept: who keeps copies keeps them for the user only.
"""

from __future__ import annotations

_EXACT = (
    *(".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".htpasswd", ".dockercfg", ".s3cfg"),
    *(".boto", ".git-credentials", "service-account.json", "service_account.json"),
)
_STARTS = (".env", "id_", "credentials", "secrets", "kubeconfig")
_ENDS = (
    *(".env", ".pem", ".key", ".p12", ".p8", ".pfx", ".jks", ".keystore", ".kdbx", ".ppk", ".ovpn"),
    *(".tfstate", ".tfstate.backup", ".tfvars", ".tfvars.json", ".kubeconfig", ".secret", ".secrets"),
)
_FOLDERS = frozenset(
    ("secrets", ".secrets", "credentials", ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker")
)
SECRET_NAMES = (*_EXACT, *(f"{start}*" for start in _STARTS), *(f"*{end}" for end in _ENDS))
"""The same as patterns: what the option `versions_exclude` is if nobody says otherwise."""


def is_secret(path: str) -> bool:
    """True if a path is one of a secret. Of a relative path only its own folders count."""
    *folders, name = path.lower().split("/")
    if not _FOLDERS.isdisjoint(folders):
        return True
    return name in _EXACT or name.startswith(_STARTS) or name.endswith(_ENDS)
