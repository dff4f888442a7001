"""Only one run uses a directory: the kernel keeps the lock, and a second run is refused with the first run's name."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from numpy_attention.errors import InputError
from numpy_attention.training import checkpoint, lock
from numpy_attention.training.lock import NAME, hold
from numpy_attention.training.log import read_log
from tests.training.small_runs import before_step, log_without_times, resume, text, trainer

__all__ = ["text"]


@pytest.fixture
def no_wait(monkeypatch):
    """A refused run does not wait for the holder's message."""
    monkeypatch.setattr(lock.time, "sleep", lambda seconds: None)


HOLDER = "import sys; from numpy_attention.training.lock import hold\nwith hold({!r}): print('held', flush=True); input()"


def holder(directory):
    """A process that holds the directory until it is killed or its input ends."""
    program = HOLDER.format(str(directory))
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_second_process_gets_the_holders_name_and_the_lock_after_a_kill(tmp_path):
    with holder(tmp_path) as process:
        message = rf"is in use: process {process.pid} on \S+ has trained there since \d{{4}}-"
        with pytest.raises(InputError, match=message), hold(tmp_path):
            raise AssertionError("two at once")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with hold(tmp_path), pytest.raises(InputError, match=rf"process {os.getpid()} on"), hold(tmp_path):
        raise AssertionError("two in one process")
    with hold(tmp_path):  # a file is left, and in nobody's way
        assert (tmp_path / NAME).exists()


def test_message_of_an_ended_run_is_not_reported_for_a_new_holder(tmp_path):
    with open(tmp_path / NAME, "w+b", buffering=0) as file:
        lock._write(file, "the dead one")
        assert lock._granted(file.fileno())
        writes = threading.Timer(0.02, lock._write, (file, "the holder"))
        writes.start()
        with pytest.raises(InputError, match="is in use: the holder;"), hold(tmp_path):
            pass
        writes.join()


def test_only_one_of_many_processes_holds_the_lock(tmp_path):
    of_many_one_holds(tmp_path)


def of_many_one_holds(directory):
    barrier, held, refused = threading.Barrier(8), [], []

    def work():
        barrier.wait()
        try:
            with hold(directory):
                held.append(1)
                barrier.wait()  # until all others have been refused
        except InputError:
            refused.append(1)
            barrier.wait()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(held), len(refused)) == (1, 7)


def test_error_releases_the_lock(tmp_path):
    with pytest.raises(KeyError), hold(tmp_path):
        raise KeyError
    with hold(tmp_path):
        pass


def test_lock_follows_no_link_and_quotes_no_unreadable_message(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    (tmp_path / NAME).symlink_to(precious)
    with pytest.raises(InputError, match=r"cannot write to .*run\.lock"), hold(tmp_path):
        pass
    assert precious.read_text("utf-8") == "keep me"
    (tmp_path / NAME).unlink()
    with hold(tmp_path):
        (tmp_path / NAME).write_bytes(b"\x1b[2J\n\xff" * 10**5)
        with pytest.raises(InputError) as caught, hold(tmp_path):
            pass
        assert len(str(caught.value)) < 500
        assert str(caught.value).isprintable()


def test_lock_file_with_a_second_name_is_replaced_and_the_other_file_is_unchanged(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    run = tmp_path / "run"
    run.mkdir()
    (run / NAME).hardlink_to(precious)
    with hold(run), pytest.raises(InputError, match=rf"process {os.getpid()} on"), hold(run):
        pass
    assert precious.read_text("utf-8") == "keep me"


def test_copy_by_links_can_be_locked_while_the_original_is_in_use(tmp_path):
    run, copy = tmp_path / "run", tmp_path / "copy"
    for directory in (run, copy):
        directory.mkdir()
    with holder(run) as process:
        (copy / NAME).hardlink_to(run / NAME)
        message = rf"run is in use: process {process.pid} on"
        with pytest.raises(InputError, match=message), hold(run):  # though its lock has a second name
            pass
        with hold(copy):
            with pytest.raises(InputError, match="copy is in use"), hold(copy):
                pass
            with pytest.raises(InputError, match=message), hold(run):
                pass
        process.kill()
    with hold(run):
        pass


@pytest.mark.usefixtures("no_wait")
def test_only_one_process_holds_a_directory_whose_lock_file_has_a_second_name(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for n in range(20):
        (tmp_path / f"other{n}").touch()
        (run / NAME).unlink(missing_ok=True)
        (run / NAME).hardlink_to(tmp_path / f"other{n}")
        of_many_one_holds(run)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="the permissions of Unix")
def test_read_only_lock_file_of_an_ended_run_can_be_locked(tmp_path, monkeypatch):
    with hold(tmp_path):
        pass
    (tmp_path / NAME).chmod(0o444)
    opened = os.open

    def as_any_user(path, flags, mode=0o777):  # root may write everything
        if flags & os.O_ACCMODE != os.O_RDONLY and not os.stat(path).st_mode & stat.S_IWUSR:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", as_any_user)
    with hold(tmp_path), pytest.raises(InputError, match="in use"), hold(tmp_path):
        pass


def test_refuses_directory_without_write_permission(tmp_path):
    for place in (tmp_path / "none", "/proc/self"):
        with pytest.raises(InputError, match="cannot write to"), hold(place):
            pass
    (tmp_path / NAME).mkdir()
    with pytest.raises(InputError, match=r"cannot write to .*Is a directory"), hold(tmp_path):
        pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.EBADF, errno.EINVAL])
def test_run_continues_on_a_file_system_without_locks(tmp_path, monkeypatch, code):
    def flock(handle, how):
        raise OSError(code, os.strerror(code))

    monkeypatch.setitem(sys.modules, "fcntl", SimpleNamespace(flock=flock, LOCK_EX=2, LOCK_NB=4))
    with hold(tmp_path), hold(tmp_path):
        pass


def test_lock_of_windows_is_used_without_fcntl(tmp_path, monkeypatch):
    locked = []

    def locking(handle, how, count):
        if locked:
            raise PermissionError(errno.EACCES, "Permission denied")
        locked.append((os.lseek(handle, 0, os.SEEK_CUR), how, count))

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))
    with hold(tmp_path):
        assert locked == [(lock.FAR, 2, 1)]  # a byte beyond all that is written, so that this can be read
        with pytest.raises(InputError, match=rf"process {os.getpid()} on"), hold(tmp_path):
            pass
    monkeypatch.setitem(sys.modules, "msvcrt", None)
    with hold(tmp_path), hold(tmp_path):
        pass


@pytest.mark.usefixtures("no_wait")
def test_two_trainers_in_one_process_cannot_share_a_directory(tmp_path, text, monkeypatch):
    first, second = (trainer(tmp_path / "run", text) for _ in range(2))
    step_once, refusals = first.one_step, []

    def step_and_disturb():
        with pytest.raises(InputError, match=rf"is in use: process {os.getpid()} on") as caught:
            second.run()
        refusals.append(caught)
        return step_once()

    monkeypatch.setattr(first, "one_step", step_and_disturb)
    assert first.run() == "finished"
    assert len(refusals) == 12
    assert [entry["step"] for entry in read_log(tmp_path / "run" / "log.jsonl")] == list(range(1, 13))
    with first.alone(), first.alone(), pytest.raises(InputError, match="is in use"):
        second.run()
    assert resume(tmp_path / "run").run() == "finished"


posix = pytest.mark.skipif(os.name == "nt", reason="Windows does not move a directory that is in use")


@posix
def test_moved_directory_is_noticed(tmp_path):
    run, moved = tmp_path / "run", tmp_path / "moved"
    run.mkdir()
    with hold(run) as require_same_directory:
        require_same_directory()
        run.rename(moved)
        with pytest.raises(InputError, match=r"run has been moved or replaced, .* continue with: .* train --resume"):
            require_same_directory()
        run.symlink_to(moved)
        require_same_directory()  # another name of the same directory
        run.unlink()
        run.mkdir()
        with pytest.raises(InputError, match="has been moved or replaced"):
            require_same_directory()


@posix
@pytest.mark.parametrize("step", [1, 3, 4, 11])
def test_run_whose_directory_was_replaced_stops_and_changes_nothing_in_the_new_directory(tmp_path, text, step):
    out, moved = tmp_path / "run", tmp_path / "moved"
    run = trainer(out, text, log_every=1 + step % 2)

    def replace():
        out.rename(moved)
        other = trainer(out, text, seed=1)
        assert other.run() == "finished"
        found.update({path.name: path.read_bytes() for path in out.iterdir()})

    found = {}
    before_step(run, step, replace)
    with pytest.raises(InputError, match="has been moved or replaced"):
        run.run()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == found
    assert resume(moved).run() == "finished"
    whole = trainer(tmp_path / "whole", text, log_every=1 + step % 2)
    assert whole.run() == "finished"
    assert log_without_times(moved) == log_without_times(tmp_path / "whole")


@posix
def test_directory_replaced_during_a_save_gets_no_best_checkpoint(tmp_path, text, monkeypatch):
    out, moved, save = tmp_path / "run", tmp_path / "moved", checkpoint.save_arrays
    run, other = trainer(out, text), trainer(out, text, seed=1)

    def move(path, arrays, meta):
        save(path, arrays, meta)
        if run.best_step and not moved.exists():
            out.rename(moved)
            out.mkdir()
            other.save()

    monkeypatch.setattr(checkpoint, "save_arrays", move)
    with pytest.raises(InputError, match=r"cannot write to .*run: No such file"):
        run.run()
    assert [path.name for path in out.iterdir()] == [checkpoint.NAME]
