"""What keeps the audit log as it is: an entry is never changed. Old ones may be deleted."""

from __future__ import annotations

from typing import Final

KEPT_BY: Final = {
    "sqlite": (
        "CREATE TRIGGER audit_same BEFORE UPDATE ON audit "
        "BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END",
    ),
    "postgresql": (
        "CREATE FUNCTION dodona_keep_audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'the audit log is only added to' "
        "USING ERRCODE = 'integrity_constraint_violation'; END $$",
        "CREATE TRIGGER audit_same BEFORE UPDATE ON audit "
        "FOR EACH ROW EXECUTE FUNCTION dodona_keep_audit()",
    ),
}
