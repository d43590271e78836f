"""The tests of sessions, with the native executor in place of the Python one."""

from __future__ import annotations

import pytest

from tests.integration.agent.test_sessions import (
    session,
    test_a_closed_session_says_so,
    test_a_crash_takes_no_other_session_with_it,
    test_a_kernel_is_measured_over_rpc,
    test_a_library_that_is_none_is_an_error_of_the_engine,
    test_a_model_is_measured_on_the_device,
    test_a_model_lost_in_a_crash_has_to_be_loaded_again,
    test_a_paused_executor_is_stopped_and_its_time_does_not_count,
    test_a_session_has_one_client,
    test_a_wrong_key_is_refused,
    test_an_executor_that_fails_is_replaced,
    test_damaged_bundles_are_named,
    test_frames_and_rpc_share_an_executor,
    test_garbage_disturbs_nobody,
    test_inputs_that_do_not_fit_are_named,
    test_intermediate_values_come_in_pieces,
    test_intermediate_values_lead_to_the_first_wrong_kernel,
    test_kernels_are_timed_in_place,
    test_rpc_cannot_leave_its_folder,
    test_sessions_are_compared_with_the_others_stopped,
    test_weights_are_pages_of_their_file,
)

__all__ = [
    "session",
    "test_a_closed_session_says_so",
    "test_a_crash_takes_no_other_session_with_it",
    "test_a_kernel_is_measured_over_rpc",
    "test_a_library_that_is_none_is_an_error_of_the_engine",
    "test_a_model_is_measured_on_the_device",
    "test_a_model_lost_in_a_crash_has_to_be_loaded_again",
    "test_a_paused_executor_is_stopped_and_its_time_does_not_count",
    "test_a_session_has_one_client",
    "test_a_wrong_key_is_refused",
    "test_an_executor_that_fails_is_replaced",
    "test_damaged_bundles_are_named",
    "test_frames_and_rpc_share_an_executor",
    "test_garbage_disturbs_nobody",
    "test_inputs_that_do_not_fit_are_named",
    "test_intermediate_values_come_in_pieces",
    "test_intermediate_values_lead_to_the_first_wrong_kernel",
    "test_kernels_are_timed_in_place",
    "test_rpc_cannot_leave_its_folder",
    "test_sessions_are_compared_with_the_others_stopped",
    "test_weights_are_pages_of_their_file",
]

# The first test may wait for the build.
pytestmark = pytest.mark.timeout(900)
