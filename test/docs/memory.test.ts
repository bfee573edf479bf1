/** The tables of docs/memory.md say what `ExpertParallel.memory` says. */
import { describe, expect, test } from 'vitest';
import { ExpertParallel, type MemoryOptions, row } from '../../src/index.js';
import { type FormatName, payloadsFor, profile } from '../../src/verify/testing/index.js';
import { page } from './markdown.js';

const models: Readonly<Record<string, string>> = {
  'DeepSeek-V3': 'deepseek_v3',
  'Qwen3-235B': 'qwen3_235b',
  'gpt-oss-120b': 'gpt_oss_120b',
};
const formats: readonly FormatName[] = ['bf16', 'fp8'];
const eps = [4, 8, 16, 32, 64];

function layerOf(model: string, format: FormatName, ranks: number, maxTokens: number): MemoryOptions {
  const { hidden, experts, topK } = profile(models[model]!);
  const payloads = Object.fromEntries(
    payloadsFor(format, hidden).map(({ name, rowBytes }) => [name, row('u8', rowBytes)]),
  );
  return { ranks, experts, topK, maxTokens, payloads, output: row('bf16', hidden) };
}

describe('docs/memory.md', () => {
  const { text } = page('docs/memory.md');
  const mebibytes = (...of: Parameters<typeof layerOf>) =>
    (ExpertParallel.memory(layerOf(...of)).bytes / 2 ** 20).toFixed(0);
  test('128 tokens a rank', () => {
    const table = text.slice(text.indexOf('\n128 tokens a rank')).split('\n\n')[1]!.split('\n');
    expect(table[0]).toBe(`| model | payload | ${eps.map((ep) => `EP ${ep}`).join(' | ')} |`);
    const rows = Object.keys(models).flatMap((model) =>
      formats.map((format) => {
        const cells = eps.map((ep) => mebibytes(model, format, ep, 128));
        return `| ${[model, format, ...cells].join(' | ')} |`;
      }),
    );
    expect(table.slice(2)).toEqual(rows);
  });

  test('4096 tokens take 32 times as much, and Kimi-K2 as much as DeepSeek-V3', () => {
    expect(text).toContain('take 32 times as much. Kimi-K2 is as DeepSeek-V3');
    const few = ExpertParallel.memory(layerOf('DeepSeek-V3', 'bf16', 8, 128)).bytes;
    const many = ExpertParallel.memory(layerOf('DeepSeek-V3', 'bf16', 8, 4096)).bytes;
    expect(many / few).toBeCloseTo(32, 0);
    const { hidden, topK } = profile('kimi_k2');
    expect(profile('deepseek_v3')).toMatchObject({ hidden, topK });
  });

  test('what slots by rank take, by whatever family', () => {
    for (const format of formats) {
      const layer = layerOf('DeepSeek-V3', format, 8, 128);
      const cells = (['one-sided', 'portable'] as const).map((family) =>
        (ExpertParallel.memory({ ...layer, family }).bytes / 2 ** 20).toFixed(1),
      );
      expect(text).toContain(`| ${[format, ...cells].join(' | ')} |`);
    }
  });

  test('what replicas spare', () => {
    const layer = layerOf('DeepSeek-V3', 'fp8', 8, 128);
    const [alone, pairs] = [layer, { ...layer, replicas: 2 }].map((of) =>
      (ExpertParallel.memory(of).bytes / 2 ** 20).toFixed(0),
    );
    expect(text).toContain(`${alone} MiB, with \`replicas: 2\` ${pairs} MiB`);
  });

  test('what several nodes take', () => {
    const size = (nodes: number): string => {
      const { bytes, hostBytes } = ExpertParallel.memory({
        ...layerOf('DeepSeek-V3', 'fp8', 8 * nodes, 128),
        nodes,
      });
      return `| ${nodes} × 8 | ${(bytes / 2 ** 20).toFixed(0)} | ${(hostBytes / 2 ** 20).toFixed(1)} |`;
    };
    for (const nodes of [2, 4, 8]) expect(text).toContain(size(nodes));
  });

  test('its formula leaves out less than it says', () => {
    expect(text).toContain('slots × (P + R + W + 8 · topK + 8)');
    for (const model of Object.keys(models)) {
      for (const ranks of eps) {
        const layer = layerOf(model, 'fp8', ranks, 512);
        const payload = layer.payloads.x!.length + layer.payloads.scales!.length;
        const row = 2 * layer.output.length;
        const slots = ranks * layer.maxTokens;
        const left = ExpertParallel.memory(layer).bytes - slots * (payload + 2 * row + 8 * layer.topK + 8);
        expect(left).toBeGreaterThan(0);
        expect(left).toBeLessThan(300 * 2 ** 10);
      }
    }
  });
});
