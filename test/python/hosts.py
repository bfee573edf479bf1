"""Two ranks of two nodes, a process each, on a stub of the driver. First one has another network, then no Node.js, and all ranks hear whose proxy did not start. Then this
script packs a message as kernels do, and the ranks' proxies move it. Then a proxy dies, and all ranks hear whose.
"""

import ctypes
import os
import signal
import sys
import time
import unittest.mock

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import heddle

LIMIT_S = 60


def until(holds):
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        os.sched_yield()


def lost(buffers):
    try:
        buffers.check()
    except heddle.RankLostError as error:
        return error


def be(rank, file):
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    options = dict(experts=4, top_k=2, max_tokens=8, hidden=128, nodes=2, device=torch.device("cpu"))
    said = []
    for wrong in (dict(HEDDLE_PROVIDER="nowhere"), dict(HEDDLE_NODE="echo")):
        with unittest.mock.patch.dict(os.environ, wrong if rank == 1 else {}):
            try:
                heddle.Buffers(**options)
            except heddle.HeddleError as error:
                said.append(f"{error.code}: {error}")
    assert not heddle.buffers._alive
    buffers = heddle.Buffers(**options)
    described = buffers._player.description
    names = [of["name"] for of in described["memory"]]
    at = buffers._player.address(names.index(described["wire"]["name"]))
    of = described["wire"]["proxies"][rank]["data"]["phases"][0]
    # A round's first number is 0: of one token, which has a row there.
    epoch, tokens, mask, rows = 0, 1, 1, 1
    row = bytes([7 + rank]) * of["row"]
    ctypes.memmove(at + of["out"] + of["rows"], row, len(row))
    (ctypes.c_uint32 * 4).from_address(at + of["out"])[:] = epoch, tokens, mask, rows
    ctypes.c_uint32.from_address(at + of["counts"]).value = rows
    ctypes.c_uint32.from_address(at + of["ready"]).value = epoch
    came = ctypes.c_uint32.from_address(at + of["came"])
    until(lambda: came.value == epoch or lost(buffers))
    buffers.check()
    found = ctypes.string_at(at + of["in"] + of["rows"], of["row"])
    said.append(f"a row of {found[0]} came" if found == bytes([8 - rank]) * of["row"] else "another row came")
    dist.barrier()
    if rank == 1:
        buffers._proxy._process.send_signal(signal.SIGKILL)
    until(lambda: lost(buffers))
    said.append(f"{lost(buffers).code}: rank {lost(buffers).rank}")
    buffers.destroy()
    everyones = [None, None]
    dist.all_gather_object(everyones, said)
    if rank == 0:
        print("\n".join(line for lines in everyones for line in lines))
    # gloo may still have a thread when its group is destroyed, and C++ then aborts the process.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    mp.spawn(be, (sys.argv[1],), nprocs=2)
