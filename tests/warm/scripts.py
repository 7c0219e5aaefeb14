"""Scripts that print everything that a script can observe of its process, and that exit in every possible way."""

from __future__ import annotations

# Each is run cold and warm; its output, files and exit code have to be the same.
# Values that differ between any two processes are not printed: pids, times, addresses.
SCRIPTS: dict[str, str] = {
    "names": "print(sorted(globals())); print(__name__, __file__, __doc__, __spec__, __package__, __cached__)",
    "loader": "print(type(__loader__).__name__, __loader__.name, __loader__.path); print(type(__builtins__))",
    "annotations": "x: int = 1\nprint(__annotations__)",
    "path": "import sys; print(sys.argv, sys.orig_argv); print(sys.path); print(sys.flags)",
    "interpreter": """
        import sys, os
        print(sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix, sys._base_executable)
        print(sys.stdout.encoding, sys.stdout.errors, sys.stdout.line_buffering, sys.stdout.write_through)
        print(sys.stderr.encoding, sys.stderr.errors, sys.stderr.line_buffering, sys.stdin.encoding)
        print(sys.stdout.name, sys.stdout.mode, sys.stdout.fileno(), sys.stdout is sys.__stdout__)
        print(sys.getrecursionlimit(), sys.getswitchinterval(), sys.getfilesystemencoding(), sys.dont_write_bytecode)
        print(sys.warnoptions, sys._xoptions, sys.gettrace(), sys.getprofile(), sys.excepthook is sys.__excepthook__)
        print(sys.meta_path, len(sys.path_hooks), hasattr(sys, "last_traceback"), hasattr(sys, "ps1"))
    """,
    "place": """
        import os
        print(os.getcwd(), os.listdir(".") != [], os.umask(0o22))
        print(os.getpgid(0) == os.getpid() == os.getsid(0), os.isatty(1), os.getpriority(os.PRIO_PROCESS, 0))
        print(sorted(os.sched_getaffinity(0)), os.getuid(), os.getgid(), sorted(os.getgroups()))
    """,
    "environment": """
        import os
        print(sorted(item for item in os.environ.items() if "DRUMLINE" not in item[0] and "_DIR" not in item[0]))
        with open("/proc/self/environ", "rb") as file:
            seen = dict(line.split(b"=", 1) for line in file.read().split(b"\\0") if line)
        print(seen == dict(os.environb), os.environ["DRUMLINE_INDEX"] in os.popen("echo $DRUMLINE_INDEX").read())
    """,
    "order of variables": "import os; print(list(os.environ))",
    "parent": """
        import os
        if os.getpid() != os.getsid(0):
            print(os.getppid() == os.getsid(0) == os.getpgid(0))
            print([open(f"/proc/{os.getppid()}/{name}").read() for name in ("cmdline", "comm")])
    """,
    "seen": """
        import os
        print(open("/proc/self/cmdline").read().split("\\0"), open("/proc/self/comm").read())
        print(sorted(int(name) for name in os.listdir("/proc/self/fd"))[:3], os.open("/dev/null", 0))
        print(len(os.listdir("/proc/self/task")))
        print([line for line in open("/proc/self/status") if line.startswith(("Cap", "NoNew", "Seccomp"))])
        # Of signals, those below 32: the others are the C library's own.
        print([int(line.split()[1], 16) & 0x7fffffff for line in open("/proc/self/status") if line.startswith("SigI")])
    """,
    "limits": """
        import resource
        print([(name, resource.getrlimit(getattr(resource, name))) for name in dir(resource) if name[:7] == "RLIMIT_"])
    """,
    "stdin": "import sys; print(repr(sys.stdin.read()), sys.stdin.isatty())",
    "signals": """
        import signal
        print([(number.name, signal.getsignal(number)) for number in sorted(signal.valid_signals()) if number < 32
               and number not in (signal.SIGINT,)], signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    """,
    "handler": """
        import os, signal
        signal.signal(signal.SIGTERM, lambda *_: print("heard"))
        os.kill(os.getpid(), signal.SIGTERM)
        print("goes on")
    """,
    "collector": "import gc; print(gc.isenabled(), gc.get_threshold(), gc.get_debug())",
    "threads": """
        import threading
        def work(): print(threading.current_thread().name)
        threads = [threading.Thread(target=work) for _ in range(3)]
        print(threading.main_thread() is threading.current_thread(), threading.active_count())
        for thread in threads: thread.start(); thread.join()
    """,
    "thread left": """
        import threading
        threading.Thread(target=lambda: (threading.main_thread().join(), print("the last"))).start()
        print("the script is over")
    """,
    "thread fails": """
        import threading
        def work(): raise ValueError("in a thread")
        thread = threading.Thread(target=work, name="worker"); thread.start(); thread.join()
    """,
    "exit": "raise SystemExit(3)",
    "exit none": "import sys; sys.exit()",
    "exit words": "import sys; sys.exit('for a reason')",
    "exit big": "import sys; sys.exit(2**40 + 5)",
    "exit at once": "import os; print('unflushed', end=''); os._exit(7)",
    "atexit": """
        import atexit
        atexit.register(print, "first in, last out"); atexit.register(print, "last in, first out")
        raise ValueError("before them")
    """,
    "atexit fails": "import atexit; atexit.register(lambda: 1 / 0); print('done')",
    "raises": """
        def inner(): raise ValueError("with words")
        def outer():
            try: inner()
            except ValueError as error: raise KeyError("another") from error
        outer()
    """,
    "group": "raise ExceptionGroup('several', [ValueError(1), KeyError('two')])",
    "hook": """
        import sys
        def hook(kind, error, trace):
            print(kind.__name__, error, trace.tb_frame.f_code.co_name, trace.tb_lineno, trace.tb_next)
        sys.excepthook = hook
        raise ValueError("for the hook")
    """,
    "interrupted": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "interrupt caught": """
        import os, signal
        try: os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt: print("caught")
    """,
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "aborted": "import os; os.abort()",
    "pipe": """
        import os, signal
        read, write = os.pipe(); os.close(read)
        try: os.write(write, b"x")
        except BrokenPipeError: print("an error, not a signal")
    """,
    "syntax": "def f(:\n    pass",
    "indentation": "if True:\nprint(1)",
    "encoding": "# -*- coding: latin-1 -*-\nprint(ascii('\u00e9'))",
    "null": "print('before')\n\0",
    "empty": "",
    "main": """
        import __main__, pickle, sys
        class Mine: pass
        print(__main__.Mine is Mine, pickle.loads(pickle.dumps(Mine())).__class__ is Mine, Mine.__module__)
    """,
    "source": """
        import inspect
        def f(): return 1
        print(inspect.getsource(f), inspect.getmodule(f).__name__, inspect.getfile(f))
    """,
    "neighbour": "import neighbour; print(neighbour.__file__, neighbour.ORIGIN)",
    "warning": "import warnings; warnings.warn('mind'); warnings.warn('old', DeprecationWarning)",
    "stdout replaced": """
        import io, sys
        old, sys.stdout = sys.stdout, io.StringIO()
        print("inside"); text = sys.stdout.getvalue(); sys.stdout = old
        print(repr(text))
    """,
    "stdout closed": "import sys; print('before'); sys.stdout.close(); sys.stderr.write('after\\n')",
    "unflushed": "import sys; sys.stdout.write('no newline'); sys.stderr.write(' and none here')",
    "logging": """
        import logging
        logging.warning("one"); logging.getLogger("x").error("two"); logging.basicConfig(level=0); logging.info("three")
        print(0 <= logging.LogRecord("n", 1, "p", 1, "m", (), None).relativeCreated < 60_000)
    """,
    "fork": """
        import os
        print("before", flush=True)
        pid = os.fork()
        if pid == 0: print("child"); raise SystemExit(4)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """,
    "children": """
        import subprocess, sys
        print(subprocess.run([sys.executable, "-c", "import sys; print(sys.argv, sys.stdin.read())"],
                             capture_output=True, text=True))
    """,
    "spawn": """
        import multiprocessing as mp
        def double(x): return 2 * x
        if __name__ == "__main__":
            with mp.get_context("spawn").Pool(2) as pool: print(pool.map(double, range(4)))
    """,
    "forkserver": """
        import multiprocessing as mp
        def work(queue): queue.put(("from", __name__, mp.current_process().name))
        if __name__ == "__main__":
            context = mp.get_context("forkserver"); queue = context.Queue()
            child = context.Process(target=work, args=(queue,)); child.start(); print(queue.get()); child.join()
            print(child.exitcode)
    """,
    "daemon": """
        import os, signal
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0: signal.pause()
            os._exit(0)
        os.wait(); print("a daemon is left")
    """,
    "chance": """
        import random, secrets, uuid, os, pathlib
        pathlib.Path(f"chance-{random.random()}-{uuid.uuid4()}-{secrets.token_hex(4)}").touch()
        print(len(list(pathlib.Path(".").glob("chance-*"))) > 0)
    """,
    "files": "import pathlib; pathlib.Path('left.txt').write_text('by ' + pathlib.Path(__file__).name)",
    "modules": "import sys; print(sorted(sys.modules))",
    "stack": "import traceback; print(traceback.format_list(traceback.extract_stack()[-1:]))",
    "fault": "import faulthandler; print(faulthandler.is_enabled())",
    "time": "import time; print(time.tzname, time.process_time() < 20, time.get_clock_info('monotonic').monotonic)",
    "locale": "import locale, os; print(locale.getlocale(), locale.getpreferredencoding(), os.device_encoding(1))",
    "import twice": "import json, json.decoder; from json import loads; print(loads('1'), json.__spec__.name)",
    "recursion": "def f(n): return f(n + 1)\ntry: f(0)\nexcept RecursionError as error: print(error)",
    "trace": """
        import sys
        frames = []
        def tell(frame, event, arg): frames.append((frame.f_code.co_name, event)); return tell
        sys.settrace(tell)
        def f(): pass
        f(); sys.settrace(None); print(frames)
    """,
    "assert": "assert 1 == 2, 'never'",
    "async": "import asyncio\nasync def f(): await asyncio.sleep(0.01); return 5\nprint(asyncio.run(f()))",
    "executor": """
        from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
        def square(x): return x * x
        if __name__ == "__main__":
            with ThreadPoolExecutor(2) as threads, ProcessPoolExecutor(2) as processes:
                print(list(threads.map(square, range(3))), list(processes.map(square, range(3))))
    """,
    "temporary": "import tempfile; print(tempfile.gettempdir(), tempfile.NamedTemporaryFile().name.count('/'))",
    "deleted": "import os; os.unlink(__file__); raise ValueError('the source is deleted')",
}  # fmt: skip
