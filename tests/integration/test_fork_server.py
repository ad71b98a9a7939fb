"""Processes that are forked from a server behave as processes that were started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import fork_server
from harness.openrlhf import cpu

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(fork_server.VARIABLE, raising=False)  # that of the Ray that other tests share
        yield from _server()


def _server() -> Iterator[str]:
    with fork_server.fork_server():
        command = fork_server.python_executable()
        assert command != sys.executable, "the server did not start"
        yield command
    assert fork_server.python_executable() == sys.executable


def run(*command: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=600, **options)  # type: ignore[call-overload,no-any-return]


def gone(pid: int) -> bool:
    for _ in range(3000):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.1)
    return False


def test_a_script_gets_arguments_environment_folder_input_and_gives_its_exit_code(python: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, sys\n"
        "said = [sys.argv, os.getcwd(), os.environ['MARK'], sys.stdin.read(), __name__]\n"
        "print(json.dumps(said)); print('trouble', file=sys.stderr); sys.exit(7)\n"
    )
    for command in (sys.executable, python):
        done = run(
            command,
            "-u",
            str(script),
            "a",
            "-m",
            cwd=tmp_path,
            input="text",
            env={**os.environ, "MARK": "of the caller"},
        )
        assert json.loads(done.stdout) == [[str(script), "a", "-m"], str(tmp_path), "of the caller", "text", "__main__"]
        assert (done.stderr, done.returncode) == ("trouble\n", 7)


def test_the_stack_is_there_at_once_and_ray_is_not(python: str) -> None:
    code = "import sys; print('torch' in sys.modules, 'vllm' in sys.modules, 'ray' in sys.modules)"
    assert run(python, "-c", code).stdout == "True True False\n"


def test_module_code_and_exceptions(python: str) -> None:
    assert run(python, "-m", "json.tool", input="[1]").stdout == "[\n    1\n]\n"
    failed = run(python, "-X", "dev", "-c", "raise ValueError('this one')")
    assert failed.returncode == 1
    assert failed.stderr.rstrip().endswith("ValueError: this one")
    assert run(python, "-c", "raise SystemExit('a word')").stderr == "a word\n"


def test_random_numbers_differ(python: str) -> None:
    code = "import random, numpy; print(random.random(), numpy.random.rand())"
    one, two = (run(python, "-c", code).stdout.split() for _ in range(2))
    assert one[0] != two[0]
    assert one[1] != two[1]


def test_threads_compute_after_the_fork(python: str) -> None:
    code = "import torch; torch.set_num_threads(2); x = torch.ones(2000, 2000); print(int((x @ x)[0, 0]))"
    assert run(python, "-c", code).stdout == "2000\n"


def test_a_run_may_compute_with_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries that start threads while they are imported must not do so in the server, which forks."""
    monkeypatch.delenv(fork_server.VARIABLE, raising=False)
    monkeypatch.setenv(cpu.THREADS_VARIABLE, "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    for python in _server():
        assert run(python, "-c", "import torch; print(torch.get_num_threads())").stdout == "2\n"


def test_multiprocessing_goes_through_the_server(python: str, tmp_path: Path) -> None:
    script = tmp_path / "spawn.py"
    script.write_text(
        "import multiprocessing, os, sys\n"
        "from harness.fork_server import fork_subprocesses\n"
        "def child(pipe): pipe.send(('vllm' in sys.modules, os.getppid())); pipe.close()\n"
        "if __name__ == '__main__':\n"
        "    fork_subprocesses()\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    here, there = context.Pipe()\n"
        "    process = context.Process(target=child, args=(there,)); process.start()\n"
        "    print(*here.recv(), os.getppid()); process.join(); print(process.exitcode)\n"
    )
    answer, code = run(python, str(script)).stdout.splitlines()
    loaded, parent_of_child, parent = answer.split()
    assert (loaded, parent_of_child, code) == ("True", parent, "0")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_process_ends_with_its_client(python: str, number: signal.Signals) -> None:
    client = subprocess.Popen(
        [python, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdout
    pid = int(client.stdout.readline())
    client.send_signal(number)
    assert client.wait(300) == -number
    assert gone(pid)
    client.stdout.close()


def test_a_process_that_is_killed_takes_its_client_along(python: str) -> None:
    done = run(python, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert done.returncode == -signal.SIGKILL


def test_everything_ends_when_the_starter_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "starter.py"
    script.write_text(
        "import subprocess, time\n"
        "from harness.fork_server import fork_server, python_executable\n"
        "with fork_server():\n"
        "    code = 'import os, time; print(os.getpid(), os.getppid(), flush=True); time.sleep(600)'\n"
        "    subprocess.Popen([python_executable(), '-c', code]); time.sleep(600)\n"
    )
    without = {name: value for name, value in os.environ.items() if name != fork_server.VARIABLE}
    starter = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=without)
    assert starter.stdout
    child, server = map(int, starter.stdout.readline().split())
    starter.kill()
    starter.wait()
    assert gone(child)
    assert gone(server)
    starter.stdout.close()


def test_a_process_ends_with_who_asked_for_it(python: str, tmp_path: Path) -> None:
    """Not only with its client: killing the process that started the client leaves the client alone."""
    script = tmp_path / "starter.py"
    script.write_text(
        "import subprocess, sys\n"
        "code = 'import os, time; print(os.getpid(), flush=True); time.sleep(300)'\n"
        "subprocess.Popen([sys.argv[1], '-c', code], start_new_session=True).wait()\n"
    )
    starter = subprocess.Popen([sys.executable, str(script), python], stdout=subprocess.PIPE, text=True)
    assert starter.stdout
    pid = int(starter.stdout.readline())
    starter.kill()
    starter.wait()
    assert gone(pid)
    starter.stdout.close()


def test_a_server_of_another_environment_or_checkout_is_not_used(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fork_server.python_executable() == python
    for other in (f"{tmp_path}\n{fork_server.ROOT}\n", f"{sys.prefix}\n{tmp_path}\n"):
        (tmp_path / fork_server.WHOSE).write_text(other)
        monkeypatch.setenv(fork_server.VARIABLE, str(tmp_path / "python"))
        assert fork_server.python_executable() == sys.executable


def test_a_server_that_does_not_start_is_told_of_once_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "__init__.py").touch()
    (tmp_path / "harness" / "fork_server.py").write_text("raise SystemExit('some warning\\nno room for threads')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fork_server, "ROOT", tmp_path)
    monkeypatch.delenv(fork_server.VARIABLE, raising=False)
    with fork_server.fork_server():
        assert fork_server.python_executable() == sys.executable
    (said,) = caplog.messages
    assert said.startswith("reuse-bench: every process of this run imports the training stack anew")
    assert said.endswith("because the process that would do it once did not start: no room for threads")


def kill_server(command: str) -> int:
    """SIGKILL to the server behind this command; returns its number."""
    server = int(run(command, "-c", "import os; print(os.getppid())").stdout)
    os.kill(server, signal.SIGKILL)
    assert gone(server)
    return server


def test_another_server_takes_the_place_of_one_that_has_died(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(fork_server.VARIABLE, raising=False)
    with fork_server.fork_server():
        command = fork_server.python_executable()
        running = subprocess.Popen([command, "-c", "import time; time.sleep(300)"])
        for _ in range(2):
            before = kill_server(command)
            # Asked for at once, when there is none: it waits, and is a fork all the same.
            done = run(command, "-c", "import os, sys; print('torch' in sys.modules, os.getppid()); sys.exit(5)")
            forked, now = done.stdout.split()
            assert (forked, int(now) == before, done.returncode) == ("True", False, 5)
        assert running.wait(30) == 1
    assert gone(int(now))
    assert [said for said in caplog.messages if "(code -9)" in said] == caplog.messages
    assert len(caplog.messages) == 2


def test_where_no_other_server_starts_processes_start_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(fork_server.VARIABLE, raising=False)
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "__init__.py").touch()
    (tmp_path / "harness" / "fork_server.py").write_text("raise SystemExit('no room for threads')\n")
    with fork_server.fork_server():
        command = fork_server.python_executable()
        monkeypatch.chdir(tmp_path)  # where the next one is looked for
        kill_server(command)
        end = time.monotonic() + 60
        while len(caplog.messages) < 2:
            assert time.monotonic() < end, caplog.messages
            time.sleep(0.1)
        code = "import sys; print('torch' in sys.modules, sys.argv[1:], sys.executable); sys.exit(5)"
        done = run(command, "-u", "-c", code, "a", "-b")
    assert (done.stdout, done.returncode) == (f"False ['a', '-b'] {sys.executable}\n", 5)
    assert caplog.messages[1].endswith("did not start: no room for threads")
