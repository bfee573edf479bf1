/**
 * What one request looks like in memory: room for a struct fi_msg_rma (a write), its iovec, its fi_rma_iov and a
 * struct fi_msg (a message), which share the iovec, and beside them what only this side reads, so that a request
 * is three cache lines and nothing else.
 */

export const two32 = 2 ** 32;
/** A slot number takes this part of a context; the rest counts its uses. */
export const slotMask = 0xfff;
/** Words of 32 bits of one request. */
export const requestWords = 48;
/** Where its struct fi_msg begins. */
export const sendWord = 28;

/** Words of a request; storing a number into one keeps its lower 32 bits. */
export const request = {
  addressLow: 6,
  addressHigh: 7,
  contextLow: 12,
  contextHigh: 13,
  immediate: 14,
  localLow: 16,
  localHigh: 17,
  localBytesLow: 18,
  localBytesHigh: 19,
  remoteLow: 20,
  remoteHigh: 21,
  remoteBytesLow: 22,
  remoteBytesHigh: 23,
  keyLow: 24,
  keyHigh: 25,
  descriptorLow: 26,
  descriptorHigh: 27,
  sendAddressLow: 34,
  sendAddressHigh: 35,
  sendContextLow: 36,
  sendContextHigh: 37,
  // Not C's: where it stands, which operation it belongs to, and when it is overdue.
  phase: 40,
  flags: 41,
  ticket: 42,
  region: 43,
  deadline: 44,
  next: 45,
} as const;

/** Where a request stands: free, taken and waiting here, or in libfabric's hands. */
export const phase = { free: 0, taken: 1, posted: 2 } as const;

/** Marks a request in its flags as a message; libfabric has no flag there. */
export const sendRequest = 1;

/**
 * Lays a request out at `at` (words) of `words`, which begin at `address`: everything that stays the same for the
 * life of its lane. `contextHigh` and the slot are its completion context; `peer` is libfabric's handle.
 */
export function layOut(
  words: Int32Array,
  address: number,
  slot: number,
  contextHigh: number,
  peer: { readonly low: number; readonly high: number },
): void {
  const at = slot * requestWords;
  const base = address + at * 4;
  const long = (word: number, value: number) => {
    words[at + word] = value;
    words[at + word + 1] = value / two32;
  };
  const local = base + request.localLow * 4;
  const descriptor = base + request.descriptorLow * 4;
  long(0, local); // fi_msg_rma.msg_iov
  long(2, descriptor); // .desc
  long(4, 1); // .iov_count
  long(8, base + request.remoteLow * 4); // .rma_iov
  long(10, 1); // .rma_iov_count
  long(sendWord, local); // fi_msg.msg_iov
  long(sendWord + 2, descriptor); // .desc
  long(sendWord + 4, 1); // .iov_count
  for (const [low, high] of [
    [request.addressLow, request.addressHigh],
    [request.sendAddressLow, request.sendAddressHigh],
  ] as const) {
    words[at + low] = peer.low;
    words[at + high] = peer.high;
  }
  for (const [low, high] of [
    [request.contextLow, request.contextHigh],
    [request.sendContextLow, request.sendContextHigh],
  ] as const) {
    words[at + low] = slot;
    words[at + high] = contextHigh;
  }
}
