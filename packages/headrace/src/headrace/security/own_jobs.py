"""Whose a job is. A name can be given again: what an earlier user of the same name ran is not the present one's."""

from __future__ import annotations

from datetime import datetime, timezone

from headrace.catalog.records import Job
from headrace.catalog.store import Store
from headrace.security.roles import Principal

_EVER = datetime.min.replace(tzinfo=timezone.utc)


def made_at(store: Store, user: Principal) -> datetime:
    """Since when there is this user. For administrators, who see everybody's jobs, all times are as good."""
    found = None if user.is_admin else store.users.user(user.name)
    return _EVER if found is None else found.created_at


def is_own(store: Store, user: Principal, job: Job) -> bool:
    """Whether this user, and no earlier one of the same name, submitted the job."""
    return job.creator.lower() == user.name.lower() and job.submitted_at >= made_at(store, user)
