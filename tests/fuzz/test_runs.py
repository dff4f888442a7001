"""A run is started twice, killed, interrupted, damaged and inspected, in any order; it resumes, or gives a reason."""

import contextlib
import os
import shutil
import signal
import time
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from numpy_attention.runs import checkpoint
from tests.fuzz import directories, processes
from tests.fuzz.attack import attack, tally
from tests.fuzz.directories import FILES, ODD_LINES, REPLACEMENTS, RUN, STEPS, Directory, same_as_undisturbed
from tests.fuzz.inside import disk_of, drop_root
from tests.fuzz.processes import Child, Outcome, judge

pytestmark = processes.here
ENDS = {0, 2}
ENDED_ITSELF = {0, 2, 130, 143}  # not killed between two lines of a save
HARMLESS = {"loss.png", "lines"}  # a run can resume without these


class Story:
    """One directory; `spoiled` are the files in it that were changed after the program wrote them."""

    def __init__(self) -> None:
        self.place = Directory()
        self.run = self.place.run
        self.spoiled: set[str] = set()

    def ended(self, child: Child, kind: str, allowed: set[int]) -> Outcome:
        outcome = child.outcome()
        tally(f"runs: {kind}", judge(outcome, allowed))
        self.place.assert_all_is_well_outside()
        if not self.spoiled:
            steps = self.place.steps_in_log()
            assert steps == sorted(set(steps)), f"a step stands twice in the log: {steps}"
        previous, last = self.run / checkpoint.PREVIOUS, self.run / checkpoint.NAME
        if outcome.code in ENDED_ITSELF and last.is_file() and previous.is_file() and not self.spoiled:
            assert not os.path.samefile(previous, last), "the checkpoint before the last one is gone"
        return outcome

    def killed(self, seconds: float) -> None:
        child = self.place.start()
        time.sleep(seconds)
        child.send(signal.SIGKILL)
        self.ended(child, "killed at any time", {0, 2, -9} if self.spoiled else {0, -9})

    def killed_in_a_save(self, save: int, line: int) -> None:
        child = self.place.start(directories.kill_during_save(save, line))
        self.ended(child, "killed in a save", {0, 2, -9} if self.spoiled else {0, -9})

    def told_to_stop(self, name: str, again: bool, seconds: float) -> None:
        child = self.place.start()
        self.wait_for_the_first_save(child)
        for _ in range(1 + again):
            time.sleep(seconds)
            child.send(signal.Signals[name])
        self.ended(child, "told to stop", {0, 130, 143, -15} | ({2} if self.spoiled else set()))

    def interrupted_late(self, seconds: float) -> None:
        """Ctrl-C after the last step, while report and picture are created."""
        child = self.place.start()
        end = time.monotonic() + 5
        while STEPS not in self.place.steps_in_log() and time.monotonic() < end and not child.ends():
            time.sleep(0.002)
        time.sleep(seconds)
        child.send(signal.SIGINT)
        self.ended(child, "interrupted late", {0, 130} | ({2} if self.spoiled else set()))

    def at_once(self, count: int, seconds: float) -> None:
        """Several runs in one directory: the others are refused, and the first run is not disturbed."""
        new, arguments, children = self.is_new(), self.place.arguments(), []
        for _ in range(count):
            children.append(self.place.start(directories.slow_start, arguments))
            time.sleep(seconds)
        ended = [self.ended(child, "at once", ENDS) for child in children]
        codes = [outcome.code for outcome in ended]
        if not self.spoiled:
            for outcome in ended:
                assert "cannot write" not in outcome.said(), f"one run is in the other's way: {outcome.said()}"
            assert codes.count(0) == 1 or (codes.count(0) and not new), f"of {count} runs in one directory {codes}"
            assert same_as_undisturbed(self.run), "two runs at once differ from one run"

    def at_once_without_a_name(self, seconds: float) -> None:
        """Two runs without a name in the same second: each gets a directory."""
        children = []
        for _ in range(2):
            children.append(self.place.start(directories.slow_start, ["train", *RUN]))
            time.sleep(seconds)
        for child in children:
            self.ended(child, "at once without a name", {0})
        found = list((self.place.top / "runs").iterdir())
        assert len(found) == 2, "two runs in one directory"
        assert all(map(same_as_undisturbed, found))
        shutil.rmtree(self.place.top / "runs")

    def begun(self) -> None:
        """Ensure that there is a file to damage."""
        if self.is_new():
            self.killed_in_a_save(4, 60)

    def is_new(self) -> bool:
        return not os.path.lexists(self.run / checkpoint.NAME)

    def goes_on(self) -> None:
        outcome = self.ended(self.place.start(), "goes on", ENDS if self.spoiled - HARMLESS else {0})
        if outcome.code == 0:
            assert same_as_undisturbed(self.run, log=not self.spoiled), "the result differs from an undisturbed run"

    def disk_full(self, room: int) -> None:
        self.ended(self.place.start(disk_of(room)), "full disk", ENDS)

    def without_permission(self, mode: int) -> None:
        self.run.mkdir(exist_ok=True)
        before = self.run.stat().st_mode
        self.run.chmod(mode)
        child = self.place.start(drop_root)
        try:
            self.ended(child, "no permission", ENDS)
        finally:
            self.run.chmod(before)

    def moved_away(self, seconds: float) -> None:
        """The directory gets another name, and another run starts under the old name; the first run must stop."""
        first, old = self.place.start(), self.place.top / "runs"
        self.wait_for_the_first_save(first)
        time.sleep(seconds)
        if self.is_new():
            self.ended(first, "moved away", ENDS)
            return
        self.run.rename(old)
        second = self.place.start(arguments=["train", "--out", "run", *RUN])
        self.ended(second, "started under the old name", {0})
        self.ended(first, "moved away", ENDS)
        assert same_as_undisturbed(self.run), "the run that was moved away has disturbed the new run"
        shutil.rmtree(self.run)
        old.rename(self.run)

    def replaced_during(self, name: str, by: str) -> None:
        """A file is replaced while a run writes the directory."""
        child = self.place.start()
        self.wait_for_the_first_save(child)
        if not self.is_new():
            with contextlib.suppress(OSError):  # the run may write the file again at the same moment
                directories.replace(self.run / name, by)
            self.spoiled.add(name)
        self.ended(child, "replaced during the run", ENDS)

    def links_in_time(self) -> None:
        self.ended(self.place.start(directories.link_in_time(self.place.top / "letter")), "links", ENDS)

    def damaged(self, name: str, kind: int, seed: int) -> None:
        self.begun()
        directories.damage(self.run / name, kind, seed)
        self.spoiled.add(name)

    def replaced(self, name: str, by: str) -> None:
        self.begun()
        directories.replace(self.run / name, by)
        self.spoiled.add(name)

    def odd_line(self, which: int) -> None:
        self.begun()
        if (self.run / "log.jsonl").is_file():
            directories.odd_line(self.run / "log.jsonl", ODD_LINES[which])
            self.spoiled.add("lines")

    def other_ids(self, seed: int) -> None:
        self.begun()
        if path := self.place.ids_file():
            directories.other_ids(path, seed)

    def fewer_ids(self) -> None:
        self.begun()
        if path := self.place.ids_file():
            directories.fewer_ids(path)

    def looked_at(self, command: str) -> None:
        arguments = {"sample": ["--tokens=5", "--prompt=one"], "attend": ["--text=one"]}[command]
        there = (self.run / checkpoint.NAME).is_file() and "checkpoint.npz" not in self.spoiled
        self.ended(Child([command, "run", *arguments], self.place.top), "looked at", {0} if there else ENDS)

    def wait_for_the_first_save(self, child: Child) -> None:
        end = time.monotonic() + 5
        while self.is_new() and time.monotonic() < end and not child.ends():
            time.sleep(0.001)

    def ends(self) -> None:
        """Run to the last step, whatever happened before."""
        self.goes_on()
        left = [path.name for path in self.run.iterdir() if ".tmp" in path.name] if self.run.is_dir() else []
        assert left == [] or self.spoiled, left


SECONDS, SEEDS = st.floats(0, 0.4), st.integers(0, 2**32)
DEEDS = st.one_of(
    st.tuples(st.just("killed"), SECONDS),
    st.tuples(st.just("killed_in_a_save"), st.integers(1, 4), st.integers(1, 120)),
    st.tuples(st.just("told_to_stop"), st.sampled_from(["SIGINT", "SIGTERM"]), st.booleans(), SECONDS),
    st.tuples(st.just("interrupted_late"), SECONDS),
    st.tuples(st.just("at_once"), st.integers(2, 3), st.floats(0, 0.02)),
    st.tuples(st.just("at_once_without_a_name"), st.floats(0, 0.02)),
    st.tuples(st.just("goes_on")),
    st.tuples(st.just("disk_full"), st.integers(0, 60_000)),
    st.tuples(st.just("without_permission"), st.sampled_from([0o000, 0o111, 0o444, 0o555])),
    st.tuples(st.just("links_in_time")),
    st.tuples(st.just("damaged"), st.sampled_from(FILES), st.integers(0, 9), SEEDS),
    st.tuples(st.just("replaced"), st.sampled_from(FILES), st.sampled_from(sorted(REPLACEMENTS))),
    st.tuples(st.just("moved_away"), SECONDS),
    st.tuples(st.just("replaced_during"), st.sampled_from(FILES), st.sampled_from(sorted(REPLACEMENTS))),
    st.tuples(st.just("odd_line"), st.integers(0, len(ODD_LINES) - 1)),
    st.tuples(st.just("other_ids"), SEEDS),
    st.tuples(st.just("looked_at"), st.sampled_from(["sample", "attend"])),
)


@attack(count=8, dear=True)
@given(steps=st.lists(DEEDS, min_size=1, max_size=8))
@example(steps=[("at_once", 2, 0.0)])
@example(steps=[("at_once_without_a_name", 0.0)])
@example(steps=[("killed_in_a_save", 4, 60), ("at_once", 2, 0.0)])
@example(steps=[("other_ids", 1)])
@example(steps=[("fewer_ids",)])
@example(steps=[("without_permission", 0)])
@example(steps=[("killed_in_a_save", 4, 60), ("without_permission", 0o555), ("replaced", "loss.png", "a directory")])
@example(steps=[("goes_on",), ("disk_full", 20_000)])
@example(steps=[("odd_line", 12)])
@example(steps=[("odd_line", 14), ("odd_line", 16), ("odd_line", 22)])
@example(steps=[("replaced", "checkpoint.npz", "a pipe"), ("looked_at", "sample")])
@example(steps=[("replaced", "checkpoint.npz", "a link to /dev/zero")])
@example(steps=[("replaced", "log.jsonl", "a pipe")])
@example(steps=[("replaced", "log.jsonl", "a link to /dev/zero")])
@example(steps=[("links_in_time",)])
@example(steps=[("moved_away", 0.0)])
@example(steps=[("replaced_during", "log.jsonl", "a pipe")])
@example(steps=[("replaced_during", "log.jsonl", "a link to a letter")])
@example(steps=[("killed_in_a_save", 3, 60), ("disk_full", 5000)])
@example(steps=[("interrupted_late", 0.1)])
@example(steps=[("damaged", "checkpoint.npz", 0, 6), ("damaged", "checkpoint.npz", 6, 176182)])
@example(steps=[("damaged", "checkpoint.best.npz", 1, 306936), ("damaged", "checkpoint.best.npz", 8, 68829)])
def test_a_run_resumes_or_gives_a_reason(steps: list[tuple[Any, ...]]) -> None:
    story = Story()
    try:
        for name, *details in steps:
            getattr(story, name)(*details)
        story.ends()
    finally:
        story.place.leave()


