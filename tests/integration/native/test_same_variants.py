"""The tests of variants of a model, with the native executor in place of the Python one."""

from __future__ import annotations

import pytest

from tests.integration.agent.execute.test_variants import (
    bound,
    test_a_session_without_model_or_inputs_says_so,
    test_a_slow_variant_runs_once_and_the_first_is_never_slow,
    test_a_variant_that_crashes_costs_the_executor_only,
    test_every_kernel_of_every_variant_is_timed_in_each_run,
    test_one_round_is_completed_whatever_the_limit,
    test_the_model_of_the_session_goes_on_as_before,
    test_variants_do_not_pile_up_on_the_device,
    test_what_is_no_variant_is_an_error_that_says_which,
)

__all__ = [
    "bound",
    "test_a_session_without_model_or_inputs_says_so",
    "test_a_slow_variant_runs_once_and_the_first_is_never_slow",
    "test_a_variant_that_crashes_costs_the_executor_only",
    "test_every_kernel_of_every_variant_is_timed_in_each_run",
    "test_one_round_is_completed_whatever_the_limit",
    "test_the_model_of_the_session_goes_on_as_before",
    "test_variants_do_not_pile_up_on_the_device",
    "test_what_is_no_variant_is_an_error_that_says_which",
]

# The first test may wait for the build.
pytestmark = pytest.mark.timeout(900)
