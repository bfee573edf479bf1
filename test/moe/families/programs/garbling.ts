/** The proxy of the hybrid family beside a peer that writes over its messages again, as soon as they have been looked at. */
import type { HostView, ProxyMaker } from '../../../../src/gpu/index.js';
import { header } from '../../../../src/moe/families/hybrid/messages.js';
import { hybridProxy, type ProxyData } from '../../../../src/moe/families/hybrid/proxy.js';

export const garbling: ProxyMaker<ProxyData & { readonly seed: number }> = (parts) => {
  const { memory, data, rank } = parts;
  let word = (data.seed * 1009 + rank) >>> 0;
  const next = () => {
    word = (Math.imul(word, 1664525) + 1013904223) >>> 0;
    return word;
  };
  const chunks = Math.ceil(data.share / data.chunk);
  const messages = (data.nodes - 1) * chunks;
  const store = (offset: number, value: number): void => {
    for (const { came, in: into, room, rows } of data.phases) {
      const message = (offset - came) / 4;
      if (message < 0 || message >= messages) continue;
      // Of the header everything but the round, and ids and weights behind it.
      for (let at = 4 * header.tokens; at < rows; at += 4) memory.store(into + message * room + at, next());
    }
    memory.store(offset, value);
  };
  const garbled: HostView = {
    load: (offset) => memory.load(offset),
    read: (offset, bytes) => memory.read(offset, bytes),
    write: (offset, bytes) => memory.write(offset, bytes),
    store,
  };
  return hybridProxy({ ...parts, memory: garbled });
};
