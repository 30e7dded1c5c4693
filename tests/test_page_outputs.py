"""tools/page_outputs.py: outputs in tutorials are read, compared and written."""

import pytest

from tools.page_outputs import Shown, difference, similar, steps, with_outputs

PAGE = """\
# A page

Save this:

<!-- file: train.py -->
```python
print("hello")
```

Type:

```sh
smq submit --name first \\
  -- python train.py
smq wait first
```

<!-- output lines=1+1 exit=4 -->
```text
first is running
...
first completed after 3 seconds
```

```yaml
pools: []
```

```sh
exit
```
"""
PRINTED = "first is running\nfirst is at work\nfirst is about to end\nfirst completed after 12 seconds"


def test_the_steps_of_a_page_are_its_files_and_commands_in_their_order() -> None:
    save, submit, leave = steps(PAGE)
    assert (save.file, save.text, save.commands) == ("train.py", 'print("hello")', [])
    assert submit.commands == ["smq submit --name first \\\n  -- python train.py", "smq wait first"]
    assert submit.shown and (submit.shown.lines, submit.shown.exit) == ((1, 1), 4)
    assert submit.shown.text.startswith("first is running\n")
    assert (leave.commands, leave.shown) == (["exit"], None)


def test_an_output_without_a_command_is_an_error() -> None:
    with pytest.raises(ValueError, match="below no commands: hello"):
        steps("<!-- output -->\n```text\nhello\n```\n")


@pytest.mark.parametrize(
    ("shown", "printed", "alike"),
    [
        ("a is running (smq logs -f a)", "a is pending: The queue has not planned since the… (smq why a)", True),
        ("a is pending, 1st in the queue", "a is pending: The queue has not planned since the… (smq why a)", True),
        ("a is running (smq logs -f a)", "a is starting (smq logs -f a)", True),
        ("8 jobs submitted: 8 running", "8 jobs submitted: 7 running, 1 pending", True),
        ("8 jobs submitted: 8 running", "7 jobs submitted: 6 running, 1 pending", False),
        ("a is running (smq logs -f a)", "b is pending: The queue has not planned since the… (smq why b)", False),
        ("a is running (smq logs -f a)", "a is pending: no instance is free (smq why a)", False),
        ("a is running (smq logs -f a)", "", False),
    ],
)
def test_a_job_that_is_submitted_while_another_invocation_plans_is_no_difference(
    shown: str, printed: str, alike: bool
) -> None:
    assert (not difference(Shown(shown), printed)) is alike


def test_an_output_that_is_similar_stays_as_it_is() -> None:
    assert with_outputs(PAGE, ["", PRINTED, ""]) == PAGE


@pytest.mark.parametrize(
    "changed",
    [
        PRINTED.replace("completed", "failed"),
        PRINTED.replace("first completed", "second completed"),
        PRINTED + "\nA new line",
        PRINTED.replace("first is running\n", ""),
        "",
    ],
)
def test_an_output_with_other_words_is_a_difference_and_is_written(changed: str) -> None:
    shown = steps(PAGE)[1].shown
    assert shown and difference(shown, changed)
    written = with_outputs(PAGE, ["", changed, ""])
    assert written != PAGE
    again = steps(written)[1].shown
    assert again and not difference(again, changed)
    assert with_outputs(written, ["", changed, ""]) == written
    assert [step.commands for step in steps(written)] == [step.commands for step in steps(PAGE)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("running  12m40s     1", "running  2h05m  1"),
        ("completed, 9 seconds ago", "completed, 1 minute and 3 seconds ago"),
        ("Starts ~35m00s", "Starts 1h10m"),
        ("1 file, 731 bytes, uploaded to s3://b/code/7ed91fded5f6ff6c1ac60443b9dc5330", "1 file, 2.4 KB, uploaded to s3://b/code/00d91fded5f6ff6c1ac60443b9dc5330"),
        ("Submitted 2026-11-27 09:58:03Z", "Submitted 2027-01-01 10:00:00Z"),
        ("up after 2.1 s", "up after 14.9 s"),
        ("0.06 instance-hours, $1.20", "1.25 instance-hours, $0.09"),
        ("http://127.0.0.1:39871/page", "http://127.0.0.1:40000/page"),
        ("preempted  0  1st  …  1  It waits", "preempted  0  1st  ?  1  It waits"),
        ("starting at step 23", "starting at step 31"),
        ("────────── ─────", "──── ────────"),
    ],
)  # fmt: skip
def test_what_differs_between_two_runs_is_similar(one: str, other: str) -> None:
    assert similar(one) == similar(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("3 running, 5 waiting", "5 running, 3 waiting"),
        ("job1 running", "job2 running"),
        ("vision  5  8", "vision  5  5"),
        ("starting at step 0", "starting at step 40"),
        ("step 10: loss 0.7374", "step 10: error 0.7374"),
        ("in 5 minutes", ""),
    ],
)
def test_names_and_counts_are_compared(one: str, other: str) -> None:
    assert similar(one) != similar(other)


def test_lines_that_may_differ_are_left_out() -> None:
    shown = Shown("starting\nstep 1\nstep 2\nended", ignore="^step")
    assert not difference(shown, "starting\nstep 1\nended")
    assert difference(shown, "starting\nstep 1\nfailed")
