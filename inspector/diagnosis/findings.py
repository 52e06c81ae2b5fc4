"""What a finding is: the type of the core, which recordings hold as well."""

from inspector.findings import Finding, Severity

__all__ = ["Finding", "Severity"]
