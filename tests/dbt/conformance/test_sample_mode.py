"""dbt's own tests: sample mode."""

from __future__ import annotations

from dbt.tests.adapter.sample_mode import test_sample_mode as sample_mode


class TestSampleModeTest(sample_mode.BaseSampleModeTest):
    pass
