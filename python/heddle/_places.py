"""Which of an expert's places the routes of a rank's tokens go to: the table that kernels read, as TypeScript deals it (a test compares them)."""

from typing import List, Sequence

#: A token's number, modulo this, is its lot: routes of a rank and a lot that name an expert go to the same place.
LOTS = 16


def place_table(places: Sequence[int], experts: int, ranks: int) -> List[List[List[int]]]:
    """[rank][expert][lot]: a place, or −1 where the expert lives nowhere. All its places get equally many lots, a rank's own first."""
    table = [[[-1] * LOTS for _ in range(experts)] for _ in range(ranks)]
    for expert in range(experts):
        own = [place for place, of in enumerate(places) if of == expert]
        count, every = len(own), ranks * LOTS
        left = [(i + 1) * every // count - i * every // count for i in range(count)]
        for only_own in (True, False):
            for lot in range(LOTS):
                for rank in range(ranks):
                    if table[rank][expert][lot] != -1:
                        continue
                    best = -1
                    for i in range(count):
                        # Equal ones take turns, from rank to rank and from lot to lot.
                        at = (rank + lot + i) % count
                        near = not only_own or own[at] * ranks // len(places) == rank
                        if near and left[at] > (left[best] if best >= 0 else 0):
                            best = at
                    if best >= 0:
                        table[rank][expert][lot] = own[best]
                        left[best] -= 1
    return table
