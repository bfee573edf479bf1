"""`heddle proxy`: the process beside a rank that moves its messages between hosts, in memory that it shares with the GPU."""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import threading
from typing import Any, Callable, Dict, List, Optional

from . import _cache
from .errors import HeddleError, RankLostError


class Proxy:
    """The proxy of a rank. Every rank of the group starts one at the same time; where one does not start, all raise its error.

    wire: what the shape says of it. file: the descriptor of its memory. wait_ms: how long kernels wait.
    """

    def __init__(
        self, wire: Dict[str, Any], file: int, rank: int, all_gather: Callable[[bytes], List[bytes]], wait_ms: int
    ) -> None:
        self._rank = rank
        #: Why it ended by itself.
        self._lost: Optional[HeddleError] = None
        self._over = False
        with socket.socket() as probe:
            probe.bind(("", 0))
            mine = [socket.gethostname(), probe.getsockname()[1], secrets.token_hex(16)]
        everyones = [json.loads(card) for card in all_gather(json.dumps(mine).encode())]
        host, port, secret = everyones[0]
        if all(other == host for other, _, _ in everyones):
            host = "127.0.0.1"
        place = dict(HEDDLE_RANK=str(rank), HEDDLE_WORLD=str(len(everyones)), HEDDLE_ADDRESS=f"{host}:{port}", HEDDLE_SECRET=secret)
        # The network has half of the time of kernels, so it names a silent rank before they give up.
        told = {**wire["proxies"][rank], "bytes": wire["bytes"], "front": wire["front"], "timeoutMs": -(-wait_ms // 2)}
        try:
            command = [_cache.find_node(), str(_cache.javascript), "proxy", "--memory", f"/proc/self/fd/{file}"]
            self._process = subprocess.Popen(
                command, env={**os.environ, **place}, pass_fds=[file], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            # One that has ended has said why.
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(told).encode() + b"\n")  # type: ignore[union-attr]
                self._process.stdin.flush()  # type: ignore[union-attr]
            self._hear(self._process.stdout.readline())  # type: ignore[union-attr]
        except (HeddleError, OSError, ValueError) as error:
            self._lost = error if isinstance(error, HeddleError) else HeddleError("HEDDLE_PROXY", str(error))
        # Who lost another rank knows less than who has a reason of its own.
        hearsay = isinstance(self._lost, RankLostError) and self._lost.rank != rank
        mine = [hearsay, rank, str(self._lost)] if self._lost else []
        failed = [said for said in map(json.loads, all_gather(json.dumps(mine).encode())) if said]
        if failed:
            self.stop()
            raise HeddleError("HEDDLE_PROXY", "the proxy of rank {1} did not start: {2}".format(*min(failed)))
        threading.Thread(target=self._watch, daemon=True).start()

    def check(self) -> None:
        """Raises RankLostError where a rank's proxy is gone, or the network to it."""
        if self._lost is not None:
            raise self._lost

    def stop(self) -> None:
        self._over = True
        if hasattr(self, "_process"):
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()  # type: ignore[union-attr]
            self._process.wait()

    def _hear(self, line: bytes) -> None:
        """Notes an error that it says, or its end."""
        if line == b"" and not self._over and self._lost is None:
            how = self._process.wait()
            self._lost = RankLostError(f"the proxy of rank {self._rank} ended with {how}", self._rank, 0)
        error = json.loads(line or b"{}").get("error")
        if error is not None and not self._over:
            ranks = error["ranks"]
            self._lost = RankLostError(error["message"], ranks[0], 0) if ranks else HeddleError(error["code"], error["message"])

    def _watch(self) -> None:
        while True:
            line = self._process.stdout.readline()  # type: ignore[union-attr]
            self._hear(line)
            if not line:
                return
