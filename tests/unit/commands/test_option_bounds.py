"""No number of an option goes on to where it is a crash."""

from __future__ import annotations

from dataclasses import Field, fields, replace
from typing import Any

import pytest

from host.errors import UserError
from host.options import DeployOptions
from host.options.setting import key_of, setting_of

NUMBERS = [one for one in fields(DeployOptions) if str(one.type).split(" ")[0] in ("int", "float")]


@pytest.mark.parametrize("option", NUMBERS, ids=lambda one: one.name)
def test_a_number_beyond_its_bounds_is_one_line_with_its_flag(option: Field[Any]) -> None:
    setting = setting_of(option)
    assert setting.most is not None, "every number has bounds"
    beyond = [setting.least - 1, int(setting.most) + 1, 10**30]
    if str(option.type).startswith("float"):
        beyond += [float("nan"), float("inf"), -1e-9]
    for value in beyond:
        with pytest.raises(UserError) as error:
            replace(DeployOptions(), **{option.name: value}).check()
        said = str(error.value)
        assert f"--{key_of(option)} " in said and "\n" not in said, (value, said)


def test_a_context_of_nothing_is_not_the_usual_one() -> None:
    with pytest.raises(UserError, match="--context 0: give a number of tokens"):
        replace(DeployOptions(), context_tokens=0).check()
    DeployOptions().check()
