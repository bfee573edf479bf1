/** `PREFIX.h`: all that a host in C, C++, Rust or Python calls, and the sizes of what it brings. */
import { combineWeighs, outputRowBytes } from '../../moe/layer/index.js';
import type { LaunchPlan } from './launch-plan.js';

/** `topkIds` → `TOPK_IDS` */
export const upper = (name: string): string =>
  name.replaceAll(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();

/** `gateUp` → `gate_up` */
export const inC = (name: string): string => upper(name).toLowerCase();

/** Names that begin with `heddle` begin with the prefix instead, but for those of the environment, which stand in quotes. */
export const renamed = (text: string, prefix: string): string =>
  text.replaceAll(/(?<!")\bheddle(?=_|\b(?!`| ))/g, prefix).replaceAll(/(?<!")\bHEDDLE(?=_)/g, upper(prefix));

const phaseFunctions = (split: boolean): string =>
  split
    ? `
/* The halves of both, with other work between them: a send does not wait for peers, its receive does. */
const char *heddle_dispatch_send(heddle_rank *, const struct heddle_round *, void *stream);
const char *heddle_dispatch_recv(heddle_rank *, const struct heddle_round *, void *stream);
const char *heddle_combine_send(heddle_rank *, const struct heddle_round *, void *stream);
const char *heddle_combine_recv(heddle_rank *, const struct heddle_round *, void *stream);
`
    : '';

const placedFields = ({ layer: { placed } }: LaunchPlan): string =>
  placed === undefined
    ? ''
    : `  /* [${placed}][16]: where routes to each expert go, by their token's number modulo 16: a place, or -1. */
  const int32_t *places;
  /* [2][${placed}]: routes by expert that went to a place, and those that went nowhere, are added up here. */
  uint32_t *routed;
`;

const weightFields = ({ weights = [] }: LaunchPlan): string =>
  weights
    .map(({ name, dtype, shape }) => {
      const extents = shape.map((extent) => `[${extent}]`).join('');
      return `  /* ${dtype} ${extents}: of this rank's experts. */\n  const void *${inC(name)};\n`;
    })
    .join('');

const expertsFunction = ({ weights }: LaunchPlan): string =>
  weights === undefined
    ? ''
    : `/* Runs the experts between dispatch and combine, with the same round. */
const char *heddle_experts(heddle_rank *, const struct heddle_round *, void *stream);
`;

const maskFunction = ({ masked }: LaunchPlan): string =>
  masked === undefined
    ? ''
    : `/*
 * Has rounds leave out ranks, those of captured graphs too: rank r where bit r % 32 of out[r / 32] is set. Routes to their experts count as -1, nobody
 * waits for them, and they stay out: their bits stay in later calls. The engine decides who is out. Every rank that stays calls it with the same, when
 * nothing runs on the GPU of any of them, and makes no round before all have called it; rounds that did not end are made anew.
 */
const char *heddle_mask(heddle_rank *, const uint32_t out[4]);
`;

/** Headers with different prefixes may be included together. */
export function printHeader(plan: LaunchPlan, prefix: string): string {
  const { layer, rows, received, family } = plan;
  const { ranks, replicas = 1, payloads, output } = layer;
  const shapeOf = (name: string): string => received[name]!.shape.map((extent) => `[${extent}]`).join('');
  const constants = {
    VERSION: `"${plan.heddle}"`,
    RANKS: ranks,
    SOURCES: ranks / replicas,
    EXPERTS: layer.experts,
    TOP_K: layer.topK,
    MAX_TOKENS: layer.maxTokens,
    HIDDEN: output.hidden,
    OUT_ROW_BYTES: outputRowBytes(layer),
    // Sizes of `rows`, in their order.
    PAYLOADS: rows.length,
    ROW_BYTES: rows.map(({ rowBytes }) => rowBytes).join(', ') || '0',
  };
  const [base, extra] = [Math.floor(layer.experts / ranks), layer.experts % ranks];
  // C has no arrays of nothing.
  const extent = (all: readonly unknown[]): number => Math.max(1, all.length);
  const broughtAs = ({ payload, rowBytes }: LaunchPlan['rows'][number]): string => {
    const { rounded } = payloads.find(({ name }) => name === payload)!;
    return `${payload}: [tokens] rows of ${rounded ? `${rowBytes / 2} bf16` : `${rowBytes} bytes`}`;
  };
  const text = `/* Written by \`heddle export ${family}\` of Heddle ${plan.heddle}. It is C11 and C++17. */
#ifndef HEDDLE_H
#define HEDDLE_H
#include <stddef.h>
#include <stdint.h>

${Object.entries(constants)
  .map(([name, value]) => `#define HEDDLE_${name} ${value}`)
  .join('\n')}
/* The id of a rank's first expert. Its ids end before that of the next rank. */
#define HEDDLE_FIRST_EXPERT(rank) ((rank) * ${base} + ((rank) < ${extra} ? (rank) : ${extra}))

#ifdef __cplusplus
extern "C" {
#endif

/* A rank: its windows, its kernels, and the windows of all other ranks. One thread at a time may use it. */
typedef struct heddle_rank heddle_rank;

/* What a program gives a rank. */
struct heddle_host {
  uint32_t rank;
  /* CUDA's number of the GPU, of which the primary context is used, as the runtime API and PyTorch do. */
  int device;
  /* Microseconds that a wait for a peer may take before it gives up; 0 for ten seconds. */
  uint32_t limit_us;
  /*
   * Brings the \`bytes\` bytes at \`mine\` to all ranks: leaves those of every rank in \`all\`, by rank, and returns 0. Only
   * create calls it, on every rank equally often.
   */
  int (*all_gather)(void *context, const void *mine, void *all, size_t bytes);
  void *context;
};

/* What a rank brings to a round: addresses in memory of its GPU. Without tokens nothing is read. */
struct heddle_round {
  /* [tokens][TOP_K]: the expert of each route, 0 to ${layer.placed === undefined ? 'EXPERTS' : layer.placed} - 1, -1 for none. Stays as it is until the round has ended. */
  const int32_t *topk_ids;
  /* [tokens][TOP_K]${layer.weights ? '' : '; not read: this export carries none'} */
  const float *topk_weights;
  /* ${rows.map(broughtAs).join('; ') || 'none'}; without gaps */
  const void *rows[${extent(rows)}];
  /* ${output.dtype} [tokens][${output.hidden}]: where combine leaves the sums. dispatch does not need it. */
  void *out;
${placedFields(plan)}${weightFields(plan)}  uint32_t tokens;
};

/* What dispatch leaves on this rank, by the rank that a token came from and its number there, until the next round's dispatch. */
struct heddle_slots {
  /*
   * ${shapeOf('experts')}: the expert of each route as topk_ids has it, so FIRST_EXPERT(rank) is this rank's first. -1 where another
   * rank owns it, and where there is no token.
   */
  const int32_t *experts;
  /* The router's weight of each route, 0 where there is no expert; or NULL. */
  const float *weights;
  /* How many routes each expert of this rank got; or NULL. */
  const uint32_t *counts;
  /* ${payloads.map(({ name }) => `${name}: ${shapeOf(`payloads.${name}`)}`).join('; ') || 'none'}; slots without an expert hold anything. */
  const void *payloads[${extent(payloads)}];
${
  combineWeighs(layer)
    ? '  /* Not used: combine takes the rows that the experts made. */'
    : `  /*
   * ${output.dtype} ${shapeOf('output')}: where the experts leave, for each slot with an expert here, the sum over its routes k here of
   * ${layer.weights ? 'weights[k] times ' : ''}what the expert of route k made of the slot's row. combine adds up these rows of all ranks, and applies no weights.
   */`
}
  void *output;
};

/* A wait that gave up: the rank that it waited for, and the round, counted from 1. -1 and 0 where none did. */
struct heddle_lost {
  int32_t rank;
  uint32_t round;
};

/*
 * These return NULL, or what is wrong in words, which stand until the next call of this thread. The stream is a CUstream or
 * cudaStream_t; nothing waits for it. Rounds may be enqueued ahead, and captured as graphs.
 */

/* Makes a rank. Every rank calls it, and waits for the others in it. Where it fails on one rank it fails on all. */
const char *heddle_create(heddle_rank **made, const struct heddle_host *);
const struct heddle_slots *heddle_received(const heddle_rank *);
const char *heddle_dispatch(heddle_rank *, const struct heddle_round *, void *stream);
${expertsFunction(plan)}/* Combines the round that was dispatched. Call it behind the experts, with the same round. */
const char *heddle_combine(heddle_rank *, const struct heddle_round *, void *stream);
${phaseFunctions(plan.split)}
/* NULL as long as no wait gave up. \`lost\` may be NULL. It does not wait for rounds; call it behind one that has ended. */
const char *heddle_failure(heddle_rank *, struct heddle_lost *lost);
${maskFunction(plan)}/* Waits for what this rank has enqueued, and frees all. Call it once the last round of every rank has ended. */
void heddle_destroy(heddle_rank *);

#ifdef __cplusplus
}
#endif
#endif
`;
  return renamed(text, prefix);
}
