"""An engine on the player alone, a thread a rank: rounds of which nothing is real but the numbers of tokens. Without torch."""

import ctypes
import sys
import threading
from pathlib import Path

from heddle import HeddleError
from heddle._player import Player

file, ranks = Path(sys.argv[1]), int(sys.argv[2])
cards, meeting, said = [b""] * ranks, threading.Barrier(ranks), [""] * ranks
MEMORY = 1 << 20  # An address that kernels of the stub never read.


def be(rank: int) -> None:
    def all_gather(mine: bytes) -> list:
        cards[rank] = mine
        meeting.wait()
        everyones = list(cards)
        meeting.wait()
        return everyones

    def allocate(size: int) -> int:
        own.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(own[-1])

    own: list = []
    try:
        player = Player(file, rank, rank, all_gather, allocate=allocate)
    except HeddleError as error:
        said[rank] = f"{error.code}: {error}"
        return
    names = player.description["arguments"]
    stages = player.description["stages"]
    values = (ctypes.c_uint64 * len(names))(*[MEMORY] * len(names))
    for tokens in [[3, 128], [0, 1]]:
        values[0] = tokens[rank]
        player.run((0, stages.index("dispatchRecv")), values, 1)
        player.run((stages.index("plan"), len(stages) - 1), values, 1)
    values[0], wrong = 129, ""
    try:
        player.run((0, 1), values, 1)
    except HeddleError as error:
        wrong = f"{error.code}: {error}"
    player.check()
    meeting.wait()
    player.destroy()
    said[rank] = wrong


threads = [threading.Thread(target=be, args=[rank]) for rank in range(ranks)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("\n".join(said))
