/**
 * The transport over NVSHMEM. Windows lie in its symmetric heap: on a GPU the peer's window is the own one's address, which
 * stands for the same place on every rank.
 */
import { nvshmemHeaders } from '../../../gpu/cuda/index.js';
import { device, type ForeignSource, foreign, pointer } from '../../../lang/index.js';
import { type Unit, unitBytes } from '../common/parts.js';
import { awaitParams, putParams, signalParams, type Transport } from './transport.js';
import type { PortableWindow } from './window.js';

/**
 * The functions that kernels call. NVSHMEM's own functions are templates and inlined, and without IBGDA they are all in its headers: so
 * they are compiled once here, and linked.
 */
const source: ForeignSource = {
  name: 'NVSHMEM',
  find() {
    const { version, folders } = nvshmemHeaders();
    return { text: `// NVSHMEM ${version}\n${text}`, folders };
  },
};

const text = `#include "non_abi/nvshmem_build_options.h"
#undef NVSHMEM_IBGDA_SUPPORT
#define NVSHMEM_ENABLE_ALL_DEVICE_INLINING
#ifdef __CUDACC_RTC__
#include <cuda/std/cstdint>
#include <cuda/std/type_traits>
namespace std {
using cuda::std::enable_if;
using cuda::std::is_floating_point;
using cuda::std::is_integral;
using cuda::std::is_same;
}
#endif
#include "non_abi/nvshmem_version.h"
#include "device/nvshmem_defines.h"
#include "device/nvshmemx_defines.h"

// The host's library fills in the state of every module that has one, and compares versions.
__constant__ nvshmemi_device_host_state_t nvshmemi_device_state_d;
__constant__ nvshmemi_version_t nvshmemi_device_lib_version_d = {
    NVSHMEM_VENDOR_MAJOR_VERSION, NVSHMEM_VENDOR_MINOR_VERSION, NVSHMEM_VENDOR_PATCH_VERSION};

extern "C" __device__ void heddle_nvshmem_put(unsigned char* to, unsigned char* from, unsigned bytes, unsigned peer) {
  nvshmemx_putmem_nbi_warp(to, from, bytes, int(peer));
}

extern "C" __device__ void heddle_nvshmem_signal_add(unsigned peer, unsigned long long* signal, unsigned value) {
  nvshmem_fence();
  nvshmemx_signal_op(reinterpret_cast<uint64_t*>(signal), value, NVSHMEM_SIGNAL_ADD, int(peer));
}

extern "C" __device__ void heddle_nvshmem_signal_set(unsigned peer, unsigned long long* signal, unsigned value) {
  nvshmem_fence();
  nvshmemx_signal_op(reinterpret_cast<uint64_t*>(signal), value, NVSHMEM_SIGNAL_SET, int(peer));
}
`;

const signalBehindFence = (adds: boolean) =>
  foreign(
    {
      name: adds ? 'heddle_nvshmem_signal_add' : 'heddle_nvshmem_signal_set',
      source,
      params: { peer: 'u32', signal: pointer('u64'), value: 'u32' },
      using: { ADDS: adds },
      effects: { writes: ['signal'], orders: ['release.sys'] },
    },
    (g, { signal, value }, { ADDS }) => {
      if (ADDS) g.network.signal(signal, g.u64(value), 'add', { order: 'release', scope: 'sys' });
      else g.network.signal(signal, g.u64(value), 'set', { order: 'release', scope: 'sys' });
    },
  );

/** Each lane sends a share: what the lanes before it wrote is behind a barrier of the caller's (transport.ts). */
const putBytes = (unit: Unit) =>
  foreign(
    {
      name: 'heddle_nvshmem_put',
      source,
      params: { to: pointer('u8'), from: pointer('u8'), bytes: 'u32', peer: 'u32' },
      using: { SIZE: unitBytes[unit] },
      effects: { reads: ['from'], writes: ['to'], warp: true },
    },
    (g, { to, from, bytes }, { SIZE }) => {
      const share = ((bytes / SIZE + 31) / 32) * SIZE;
      const start = g.laneId * share;
      if (start < bytes) g.network.put(to.at(start), from.at(start), g.min(share, bytes - start));
    },
  );

const signalBehindPuts = (window: PortableWindow) =>
  device(
    {
      params: signalParams(window),
      using: { signalAdd: signalBehindFence(true), signalSet: signalBehindFence(false) },
    },
    (_, { peer, signal, value, adds }, u) => {
      if (adds) u.signalAdd({ peer, signal, value });
      else u.signalSet({ peer, signal, value });
    },
  );

/** A fence stands for the puts of all threads whose barrier it is behind: they go where its signal goes, one after another. */
export const nvshmem: Transport = {
  put: (window, unit) =>
    device(
      { params: putParams(window, unit), using: { SIZE: unitBytes[unit], putBytes: putBytes(unit) } },
      (_, { to, from, count, peer }, u) => {
        u.putBytes({ to: to.as('u8'), from: from.as('u8'), bytes: count * u.SIZE, peer });
      },
    ),
  settle: signalBehindPuts,
  signal: signalBehindPuts,
  awaitSignal: device({ params: awaitParams, returns: 'bool' }, (g, { signal, value, limit }) =>
    g.awaitEpoch(signal, value, { order: 'acquire', scope: 'sys', limit }),
  ),
};
