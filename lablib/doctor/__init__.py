"""`python -m lablib doctor`: would the labs run on this machine? Facts first, then what they mean."""

from __future__ import annotations

__all__ = ["main"]


def main() -> int:
    """Print what was found, one line a topic; return 1 when the labs would not run."""
    from lablib.doctor.facts import gather
    from lablib.doctor.findings import findings

    found = findings(gather())
    print(*found, sep="\n")
    failed = [finding.topic for finding in found if finding.status == "fail"]
    print(f"\nThe labs would not run: see {', '.join(failed)}." if failed else "\nThe labs run here.")
    return 1 if failed else 0
